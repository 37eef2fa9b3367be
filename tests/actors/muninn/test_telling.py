"""What is told of evidence: of what was first, with how many agree; both sides of a conflict."""

from __future__ import annotations

from actors.muninn.evidence import kept
from actors.muninn.index import Suspicion
from actors.muninn.memo import Found
from actors.muninn.telling import answer, quarantined
from tests.derivations import advance, seen, signed


def test_an_answer_tells_who_was_first_and_how_many_agree() -> None:
    first, newest = seen(advance(1), engine_build="old"), seen(advance(1), engine_build="new")
    told = answer(Found(newest, kept(first, 77), 3, 1))
    assert (told.state, told.evidence, told.first_ns) == ("known", newest.id, 77)
    assert (told.engine_build, told.testimonies, told.checks) == ("old", 3, 1)
    assert told.outputs == list(newest.evidence.outputs)
    # Where the log lost the first, the newest is what there is.
    assert answer(Found(newest, None, 1, 0)).engine_build == "new"


def test_a_conflict_is_told_with_both_sides() -> None:
    one, other = advance(1), advance(1, page=5)
    suspicion = Suspicion(invocation=one.invocation, evidence=[signed(one), signed(other)])
    told = quarantined("alice", seen(one).key, suspicion)
    assert told.domain == "alice"
    assert [each.outputs for each in told.testimonies] == [list(one.outputs), list(other.outputs)]
