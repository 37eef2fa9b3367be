"""What executions are reported to the muninn room: who may, and what of it is remembered."""

from __future__ import annotations

import msgspec
import pytest

from protocol.derivation import Derivation, ExecutionClass, Output, invocation_id, open_evidence
from protocol.errors import CapabilityError, InvocationError, LimitExceeded
from protocol.families import assembled
from protocol.ids import StateId, TokensId
from protocol.messages import muninn as messages
from protocol.record import encode_record, object_id
from tests.derivations import PROFILE, STRANGER, advance, assembly, generation
from tests.derivations import signed as signed_by
from tests.muninn_rooms import Raven
from tests.rooms import Principal


@pytest.mark.req("DRV-7", "KV-12")
async def test_what_is_reported_in_one_batch_is_known(raven: Raven, alice: Principal) -> None:
    made = [advance(1), advance(2), assembled(assembly(1), TokensId.of(b"stream"))]
    results = await raven.report(*(raven.execution(each) for each in made))
    assert [each.result for each in results] == ["inserted"] * 3
    assert [each.evidence for each in results] == [
        object_id(open_evidence(raven.evidence(each))) for each in made
    ]
    answers = await raven.look(alice, *made, advance(3))
    for derivation, answer, result in zip(made, answers[:3], results, strict=True):
        assert answer == messages.Answer(
            state="known",
            invocation=derivation.invocation,
            outputs=list(derivation.outputs),
            evidence=result.evidence,
            executor=raven.house.signers["worker"].public,
            engine_build="build 1",
            first_ns=raven.house.clock.wall_ns(),
            testimonies=1,
            checks=0,
        )
    assert answers[3] == messages.Answer(state="unknown")
    assert await raven.remember(*made) == ["already-present"] * 3


@pytest.mark.req("DRV-2", "DRV-3", "KV-2")
async def test_results_from_two_snapshots_are_two_and_from_one_a_conflict(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    here, there = StateId.of(b"pages"), StateId.of(b"other pages")
    one, other = advance(1, snapshot=here), advance(1, page=2, snapshot=there)
    assert await raven.remember(one, other) == ["inserted"] * 2
    assert await raven.known(alice, one, other) == [True, True]
    # What is promised of no snapshot is a third thing.
    assert await raven.remember(advance(1, page=3)) == ["inserted"]
    # Executed again: equal from the same pages, else one of the two is wrong.
    first = object_id(open_evidence(raven.evidence(one)))
    again = raven.evidence(one, run=2, verifier=first)
    (checked,) = await raven.verified(
        messages.Check(domain="alice", invocation=one.invocation, evidence=again)
    )
    assert checked.result == "equal"
    assert await raven.remember(advance(1, page=4, snapshot=here)) == ["conflict"]
    assert await raven.known(alice, one, other, advance(1, page=3)) == [False, True, True]
    (quarantined,) = (await raven.status(operator)).quarantined
    assert quarantined.invocation == invocation_id(one.invocation)


@pytest.mark.req("DRV-2")
@pytest.mark.parametrize("outcome", ["error", "timeout", "truncated", "cancelled", "partial"])
async def test_what_did_not_complete_is_not_remembered(
    raven: Raven, alice: Principal, outcome: str
) -> None:
    whole = raven.execution(advance(1))
    failed = messages.Execution(
        outcome=outcome,  # type: ignore[arg-type]
        invocation=whole.invocation,
        evidence=whole.evidence,
    )
    (result,) = await raven.report(failed)
    assert (result.result, result.evidence) == ("not-remembered", None)
    assert outcome in str(result.reason)
    assert await raven.known(alice, advance(1)) == [False]


@pytest.mark.req("DRV-2")
async def test_an_effect_and_chance_are_never_remembered(alice: Principal, raven: Raven) -> None:
    answer = (Output("answer", str(TokensId.of(b"answer"))),)
    for execution_class in (ExecutionClass.EFFECTFUL, ExecutionClass.NONDETERMINISTIC):
        invocation = msgspec.structs.replace(advance(1).invocation, execution_class=execution_class)
        made = Derivation(invocation, advance(1).outputs)
        assert await raven.remember(made) == ["not-remembered"]
        assert await raven.known(alice, made) == [False]
    for seed in (None, 7):
        made = Derivation(generation(seed=seed), answer)
        assert await raven.remember(made) == ["not-remembered"]
        assert await raven.known(alice, made) == [False]
    assert raven.tables is not None
    assert raven.tables.logs() == []


@pytest.mark.req("DRV-2")
async def test_a_promise_that_was_withdrawn_ends_what_it_allowed() -> None:
    raven = await Raven(reproducible=[PROFILE]).start()
    alice = await raven.house.enroll("alice")
    made = Derivation(generation(), (Output("answer", str(TokensId.of(b"answer"))),))
    assert await raven.remember(made) == ["inserted"]
    assert await raven.known(alice, made) == [True]
    raven.reproducible = []
    await raven.restart()
    assert await raven.known(alice, made) == [False]


@pytest.mark.req("DRV-3")
async def test_only_ones_own_evidence_is_taken(raven: Raven, alice: Principal) -> None:
    made = advance(1)
    forged = bytearray(raven.evidence(made))
    forged[-1] ^= 1
    others = {
        "forged": bytes(forged),
        "another room's": raven.evidence(made, "assembler"),
        "a stranger's": signed_by(made, STRANGER),
        "muninn's own": raven.evidence(made, "muninn"),
        "of another invocation": raven.evidence(advance(2)),
        "of less than a result": raven.evidence(Derivation(made.invocation, ())),
        "nothing": None,
        "noise": b"\x80",
    }
    for what, evidence in others.items():
        entry = messages.Execution(
            outcome="complete", invocation=made.invocation, evidence=evidence
        )
        whole = raven.execution(advance(3), run=len(what))
        results = await raven.report(entry, whole)
        assert results[0].result == "refused", what
        assert results[0].evidence is None
        # One that is refused holds up no other.
        assert results[1].result in ("inserted", "already-present")
    assert await raven.known(alice, made, advance(3)) == [False, True]


@pytest.mark.req("DRV-3")
async def test_an_id_beside_its_bytes_is_computed(raven: Raven) -> None:
    made = assembled(assembly(1), TokensId.of(b"stream"))
    for held, wanted in ((assembly(1), "inserted"), (assembly(2), "refused")):
        entry = messages.Execution(
            outcome="complete",
            invocation=made.invocation,
            evidence=raven.evidence(made, "assembler"),
            bodies=[messages.Body(label="context", body=encode_record(held))],
        )
        (result,) = await raven.report(entry, room="assembler")
        assert result.result == wanted


@pytest.mark.req("DRV-3")
async def test_nobody_else_reports_or_checks(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    report = messages.Report(entries=[raven.execution(advance(1))])
    checks = messages.Verified(
        checks=[messages.Check(domain="alice", invocation=advance(1).invocation)]
    )
    for op, ask in (("report", report), ("verified", checks)):
        with pytest.raises(InvocationError, match="needs the right 'operate'"):
            await alice.caller.ask("muninn", op, ask, messages.Results)
        for room in ("ropes", "gateway", "authority"):
            with pytest.raises(CapabilityError):
                await raven.ask_as_room(room, op, ask, messages.Results)
    # Not even one who runs the machine reports.
    with pytest.raises(CapabilityError, match="only a room that executes"):
        await operator.caller.ask("muninn", "report", report, messages.Results, administer=True)
    assert await raven.known(alice, advance(1)) == [False]


async def test_a_batch_is_bounded(raven: Raven, alice: Principal, operator: Principal) -> None:
    many = [advance(1).invocation] * (messages.BATCH_MAX + 1)
    entries = [messages.Execution(outcome="error", invocation=each) for each in many]
    with pytest.raises(LimitExceeded):
        await raven.report(*entries)
    with pytest.raises(LimitExceeded):
        await raven.look(alice, *many)
    for count in (-1, messages.BATCH_MAX + 1):
        with pytest.raises(LimitExceeded):
            await raven.sample(operator, count)
    assert await raven.charged(operator) == {}
