"""Guards: a function of the evidence, whatever its order; nothing leads out of quarantine."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.muninn.evidence import Examined
from actors.muninn.guard import EVIDENCE_MAX, Guard, lose_inputs, witness
from protocol.ids import EvidenceId
from tests.derivations import ASSEMBLER, WORKER, advance, seen

SAME = [seen(advance(1), run=run) for run in range(3)]
OTHER = seen(advance(1, page=1))


def after(*said: Examined | None) -> Guard:
    guard: Guard | None = None
    for seq, entry in enumerate(said, 1):
        if entry is None:
            assert guard is not None
            guard = lose_inputs(guard).guard
        else:
            guard = witness(guard, entry, seq).guard
    assert guard is not None
    return guard


def test_the_first_evidence_is_active() -> None:
    step = witness(None, SAME[0], 9)
    assert step.guard == Guard(
        state="active",
        outputs=SAME[0].outputs_digest,
        seq=9,
        evidence=[SAME[0].id.digest],
        checks=0,
    )
    assert (step.result, step.kept) == ("inserted", True)


def test_the_same_outputs_gather_evidence() -> None:
    guard = after(SAME[0])
    step = witness(guard, SAME[1], 2)
    assert (step.result, step.kept, step.guard.state) == ("already-present", True, "active")
    assert step.guard.evidence == [SAME[0].id.digest, SAME[1].id.digest]
    assert (step.guard.seq, step.guard.checks) == (1, 0)


@pytest.mark.req("DRV-3")
def test_evidence_that_is_replayed_adds_nothing() -> None:
    guard = after(*SAME)
    for replayed in SAME:
        step = witness(guard, replayed, 4)
        assert (step.guard, step.result, step.kept) == (guard, "already-present", False)


@pytest.mark.req("DRV-4")
@pytest.mark.parametrize("said", list(itertools.permutations([SAME[0], SAME[1], OTHER])))
def test_other_outputs_quarantine_in_any_order(said: tuple[Examined, ...]) -> None:
    guard = after(*said)
    assert guard.state == "quarantined"
    assert set(guard.evidence) == {each.id.digest for each in said}
    for more in (*SAME, OTHER):
        step = witness(guard, more, 4)
        assert (step.guard.state, step.result) == ("quarantined", "conflict")
    assert lose_inputs(guard) == (guard, "conflict", False)
    # What came first is what the guard goes by: neither side replaces the other.
    assert guard.outputs == said[0].outputs_digest


@pytest.mark.req("DRV-4")
def test_a_check_counts_only_as_a_new_execution_of_what_it_checks() -> None:
    guard = after(SAME[0])
    checked = seen(advance(1), run=5, verifier=SAME[0].id)
    step = witness(guard, checked, 2)
    assert (step.result, step.guard.checks) == ("equal", 1)
    again = witness(step.guard, checked, 3)
    assert (again.result, again.guard.checks, again.kept) == ("already-present", 1, False)
    stray = seen(advance(1), run=6, verifier=EvidenceId.of(b"never seen"))
    assert witness(guard, stray, 2).guard.checks == 0
    differs = seen(advance(1, page=1), run=7, verifier=SAME[0].id)
    step = witness(guard, differs, 2)
    assert (step.result, step.guard.state, step.guard.checks) == ("conflict", "quarantined", 0)


@pytest.mark.req("DRV-4")
def test_lost_inputs_expire_and_an_execution_renews() -> None:
    guard = after(SAME[0], None)
    assert guard.state == "expired"
    assert lose_inputs(guard) == (guard, "expired", False)
    assert guard.checks == 0
    for renewing in (SAME[0], SAME[1]):
        step = witness(guard, renewing, 3)
        assert (step.guard.state, step.result, step.kept) == ("active", "already-present", True)
    assert witness(guard, OTHER, 3).guard.state == "quarantined"


def test_testimonies_are_bounded() -> None:
    many = [seen(advance(1), run=run) for run in range(EVIDENCE_MAX + 3)]
    guard = after(*many)
    assert len(guard.evidence) == EVIDENCE_MAX
    assert witness(guard, many[-1], 99).kept is False
    step = witness(guard, OTHER, 99)
    assert (step.guard.state, step.kept) == ("quarantined", True)
    assert witness(step.guard, many[-1], 100).kept is False
    # A check beyond the bound agrees, and is not counted twice by a replay.
    more = seen(advance(1), run=99, verifier=many[0].id)
    assert witness(guard, more, 99).guard.checks == 0
    assert witness(guard, more, 99).result == "equal"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.booleans()), min_size=1))
def test_a_guard_is_what_was_said(said: list[tuple[int, int, bool]]) -> None:
    """Against sets: who said what, and whether anything differed."""
    pool = {
        (run, page, by): seen(advance(1, page=page), ASSEMBLER if by else WORKER, run=run)
        for run, page, by in said
    }
    guard = after(*(pool[each] for each in said))
    assert (guard.state == "quarantined") is (len({page for _, page, _ in said}) > 1)
    assert set(guard.evidence) == {pool[each].id.digest for each in said}
    assert len(guard.evidence) == len(set(said))
    assert guard.outputs == pool[said[0]].outputs_digest
