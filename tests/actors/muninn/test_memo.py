"""The memo of one domain: conflicts and checks, room, trust, and samples."""

from __future__ import annotations

from collections import Counter

import pytest

from actors.muninn.evidence import EvidenceLog, Examined
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.derivation import invocation_id
from protocol.ids import InvocationId
from store.memory_tables import MemoryTables
from tests.derivations import ASSEMBLER, STRANGER, WORKER, FailingTables, advance, seen, signed
from tests.memos import known, opened, page


@pytest.mark.req("DRV-4")
async def test_a_conflict_is_noticed_after_eviction() -> None:
    tables = MemoryTables()
    memo = opened(tables, MemoLimits(entries_max=1000, resident_max=2))
    await memo.admit([seen(advance(number)) for number in range(4)])
    assert [known(memo, number) for number in range(4)] == [None, None, page(2), page(3)]
    assert await memo.admit([seen(advance(0, page=1))]) == ["conflict"]
    (key, suspicion), *more = memo.suspicions(9)
    assert not more
    assert key == seen(advance(0)).key
    assert suspicion.evidence == [signed(advance(0)), signed(advance(0, page=1))]
    # Nothing that is said later brings either back.
    assert await memo.admit([seen(advance(0)), seen(advance(0), run=9)]) == ["conflict"] * 2
    assert known(memo, 0) is None


@pytest.mark.req("DRV-4")
async def test_a_conflict_within_one_report() -> None:
    memo = opened(MemoryTables())
    told = await memo.admit([seen(advance(0)), seen(advance(0, page=1)), seen(advance(0), run=1)])
    assert told == ["inserted", "conflict", "conflict"]
    assert known(memo, 0) is None
    assert memo.figures()["quarantined"] == 1


@pytest.mark.req("DRV-4")
async def test_a_check_takes_nothing_in_about_what_is_not_known() -> None:
    tables = MemoryTables()
    memo = opened(tables)
    stray = seen(advance(0), verifier=seen(advance(0), run=8).id)
    assert await memo.admit([stray, stray.key], known_only=True) == ["unknown", "unknown"]
    assert EvidenceLog(tables, "alice", 0).head().seq == 0
    await memo.admit([seen(advance(0))])
    equal = seen(advance(0), run=1, verifier=seen(advance(0)).id)
    assert await memo.admit([equal], known_only=True) == ["equal"]
    assert await memo.admit([equal], known_only=True) == ["already-present"]


@pytest.mark.req("DRV-4")
async def test_a_conflict_is_not_served_even_if_it_cannot_be_written() -> None:
    tables = FailingTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0))])
    tables.full = True
    assert await memo.admit([seen(advance(0, page=1))]) == ["unknown"]
    tables.full = False
    assert await memo.admit([seen(advance(0, page=1))]) == ["conflict"]
    assert known(memo, 0) is None


@pytest.mark.req("DRV-5")
async def test_a_full_log_takes_only_what_ends_service() -> None:
    tables = MemoryTables()
    memo = opened(tables, MemoLimits(entries_max=3, resident_max=9))
    await memo.admit([seen(advance(0)), seen(advance(1)), seen(advance(2))])
    assert await memo.admit([seen(advance(3)), seen(advance(0), run=1)]) == [
        "capacity",
        "already-present",
    ]
    assert known(memo, 3) is None
    assert [known(memo, n) for n in range(3)] == [page(n) for n in range(3)]
    assert EvidenceLog(tables, "alice", 0).head().seq == 3
    assert await memo.admit([seen(advance(1, page=1)), seen(advance(2)).key]) == [
        "conflict",
        "expired",
    ]
    assert [known(memo, n) for n in range(3)] == [page(0), None, None]
    assert await memo.rebuild(disown=True)
    assert await memo.admit([seen(advance(3))]) == ["inserted"]


async def test_the_least_recently_used_goes_first() -> None:
    memo = opened(MemoryTables(), MemoLimits(entries_max=1000, resident_max=3))
    await memo.admit([seen(advance(number)) for number in range(3)])
    assert known(memo, 0) == page(0)
    await memo.admit([seen(advance(3))])
    assert [known(memo, n) for n in range(4)] == [page(0), None, page(2), page(3)]
    # What is said again is at hand again.
    await memo.admit([seen(advance(1))])
    assert known(memo, 1) == page(1)
    assert memo.figures() == {
        "invocations": 4,
        "resident": 3,
        "evidence": 4,
        "quarantined": 0,
        "damaged": 0,
    }


@pytest.mark.req("DRV-3")
async def test_evidence_of_a_key_that_counts_no_more_is_not_served() -> None:
    tables = MemoryTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0), WORKER), seen(advance(1), ASSEMBLER)])
    later = opened(tables, trusted=frozenset((ASSEMBLER.public, STRANGER.public)))
    assert [known(later, n) for n in range(2)] == [None, page(1)]
    # The new key's own word brings it back, and a contradiction of the old one still counts.
    await later.admit([seen(advance(0), ASSEMBLER)])
    assert known(later, 0) == page(0)
    assert await later.admit([seen(advance(1, page=1), ASSEMBLER)]) == ["conflict"]


@pytest.mark.req("DRV-3")
async def test_evidence_of_another_domain_is_not_served() -> None:
    tables = MemoryTables()
    alice, bob = opened(tables), opened(tables, domain="bob")
    await alice.admit([seen(advance(0))])
    await bob.admit([seen(advance(0, page=1), domain="bob")])
    assert (known(alice, 0), known(bob, 0)) == (page(0), page(0, 1))
    # Even if it lies there: what is signed names its domain.
    await bob.admit([seen(advance(1))])
    assert known(bob, 1) is None
    assert not bob.sound


def drawn(memo: DomainMemo, count: int, seed: bytes) -> list[InvocationId]:
    return [invocation_id(each.invocation) for each in memo.draw(count, seed)]


@pytest.mark.req("DRV-4")
async def test_samples_are_drawn_from_what_is_served() -> None:
    memo = opened(MemoryTables())
    all_of_them: list[Examined | InvocationId] = [seen(advance(n)) for n in range(20)]
    await memo.admit(all_of_them)
    await memo.admit([seen(advance(0, page=1)), seen(advance(1)).key])
    served = {seen(advance(n)).key for n in range(2, 20)}
    assert set(drawn(memo, 100, b"")) == served
    assert drawn(memo, 5, b"seed") == drawn(memo, 100, b"seed")[:5]
    assert drawn(memo, 0, b"seed") == []
    firsts = Counter(drawn(memo, 1, bytes((n,)))[0] for n in range(250))
    assert set(firsts) == served
    assert max(firsts.values()) < 40
