"""Compacting a log: the same index from fewer entries, behind a checkpoint of ours."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.muninn.compaction import compacted, open_checkpoint, sign_checkpoint
from actors.muninn.evidence import EvidenceLog, Examined, Kept, last_generation
from actors.muninn.guard import Guard
from actors.muninn.index import MEMO, Index, read_header
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.errors import CorruptObject, StoreFault
from protocol.ids import InvocationId
from store.memory_tables import MemoryTables
from store.tables import LogHead
from tests.derivations import SEALER, STRANGER, FailingTables, advance, seen
from tests.memos import opened

KEYS = 8
LIMITS = MemoLimits(entries_max=160, resident_max=100)


def repeated(number: int, run: int, **changes: object) -> Examined:
    return seen(advance(number), run=run, **changes)


def guards(tables: MemoryTables) -> dict[InvocationId, Guard]:
    header = read_header(tables, "alice")
    assert header is not None
    index = Index(tables, "alice", header.generation)
    found = {}
    for number in range(KEYS):
        guard = index.guard(seen(advance(number)).key)
        assert guard is not None
        found[seen(advance(number)).key] = guard
    return found


async def filled(tables: MemoryTables) -> DomainMemo:
    """A crowded memo: repeats of everything, a spot check of a repeat, a conflict, an expiry."""
    memo = opened(tables, LIMITS)
    await memo.admit([repeated(n, run) for run in range(18) for n in range(KEYS)])
    checked = repeated(2, 16).id
    await memo.admit([repeated(2, 99, verifier=checked), seen(advance(3, page=1))])
    await memo.admit([seen(advance(4)).key])
    return memo


def states(tables: MemoryTables) -> list[str | None]:
    header = read_header(tables, "alice")
    assert header is not None
    index = Index(tables, "alice", header.generation)
    found = [index.guard(seen(advance(number)).key) for number in range(KEYS)]
    return [None if guard is None else guard.state for guard in found]


def served(memo: DomainMemo) -> list[bool]:
    found = [memo.find(seen(advance(number)).key) for number in range(KEYS)]
    return [each is not None and memo.stands(each) for each in found]


@pytest.mark.req("DRV-3", "DRV-4")
async def test_what_is_needed_stays_and_repeats_go() -> None:
    tables = MemoryTables()
    memo = await filled(tables)
    before, log = guards(tables), EvidenceLog(tables, "alice", 0)
    old, known = log.head(), served(memo)
    assert memo.is_crowded
    assert await memo.compact()
    assert (memo.sound, memo.is_crowded) == (True, False)
    assert served(memo) == known
    after = guards(tables)
    for key, guard in before.items():
        assert (after[key].state, after[key].outputs, after[key].checks) == (
            guard.state,
            guard.outputs,
            guard.checks,
        )
        assert after[key].evidence[0] == guard.evidence[0]
    # Of seven invocations their first evidence, a check and what it checked, all that was said of
    # the one in quarantine, the expiry, and the checkpoint.
    fresh = EvidenceLog(tables, "alice", 1)
    assert fresh.head().seq == 7 + 2 + 19 + 1 + 1
    assert memo.figures()["evidence"] == fresh.head().seq
    assert memo.suspicions(9)[0][0] == seen(advance(3)).key
    first = fresh.read(1)
    assert first is not None
    assert first.checkpoint is not None
    checkpoint = open_checkpoint(first.checkpoint, SEALER.public, "alice")
    assert (checkpoint.log, checkpoint.seq, checkpoint.digest) == (log.name, *old)
    assert tables.logs() == [fresh.name]
    # It is what a restart and a rebuild find as well, and it goes on.
    again = opened(tables, LIMITS)
    assert (again.sound, served(again)) == (True, known)
    assert await again.rebuild()
    assert (served(again), guards(tables)) == (known, after)
    assert await again.admit([repeated(0, 500), seen(advance(3))]) == [
        "already-present",
        "conflict",
    ]


async def test_one_that_would_give_nothing_back_is_left_alone() -> None:
    tables = MemoryTables()
    memo = opened(tables, MemoLimits(entries_max=10, resident_max=10))
    await memo.admit([seen(advance(n)) for n in range(10)])
    assert not memo.is_crowded
    assert not await memo.compact()
    assert await memo.admit([seen(advance(11))]) == ["capacity"]
    assert EvidenceLog(tables, "alice", 0).head().seq == 10


@pytest.mark.req("DRV-4")
async def test_whatever_was_said_compacting_changes_no_verdict() -> None:
    """Random reports, checks and losses: the compacted memo judges what follows as one that was
    not compacted does."""
    compactions = 0
    for seed in range(4):
        random = Random(seed)
        one, other = MemoryTables(), MemoryTables()
        memos = opened(one, LIMITS), opened(other, MemoLimits(10**6, 100))
        heard: list[Examined] = []

        def said(random: Random = random, heard: list[Examined] = heard) -> Examined | InvocationId:
            number = random.randrange(KEYS)
            if random.random() < 0.1:
                return seen(advance(number)).key
            page = int(random.random() < 0.01)
            verifier = random.choice(heard).id if heard and random.random() < 0.1 else None
            heard.append(seen(advance(number, page=page), run=len(heard), verifier=verifier))
            return heard[-1]

        # At most so many as fit, whatever is given back: a full log takes no more.
        while memos[0].figures()["evidence"] + 20 <= LIMITS.entries_max and len(heard) < 240:
            batch = [said() for _ in range(20)]
            results = [await memo.admit(batch) for memo in memos]
            # A testimony beyond those that are told apart may be told apart again: the verdicts of
            # a check and of an agreement are both agreement.
            agreed = [
                ["same" if r in ("equal", "already-present") else r for r in each]
                for each in results
            ]
            assert agreed[0] == agreed[1], seed
            while memos[0].is_crowded:
                assert await memos[0].compact()
                compactions += 1
            assert states(one) == states(other)
    assert compactions > 4


@pytest.mark.req("DRV-3")
async def test_a_checkpoint_of_another_is_not_believed() -> None:
    tables = MemoryTables()
    await (await filled(tables)).compact()
    stranger = opened(tables, LIMITS, signer=STRANGER)
    assert await stranger.rebuild()
    assert stranger.figures()["damaged"] == 1
    signed = EvidenceLog(tables, "alice", 1).read(1)
    assert signed is not None
    assert signed.checkpoint is not None
    with pytest.raises(CorruptObject, match="another domain"):
        open_checkpoint(signed.checkpoint, SEALER.public, "bob")
    with pytest.raises(CorruptObject, match="no checkpoint of this room"):
        open_checkpoint(signed.checkpoint[:-1] + b"\0", SEALER.public, "alice")


async def test_what_was_begun_and_not_finished_is_no_generation() -> None:
    tables = MemoryTables()
    memo = await filled(tables)
    known, log = served(memo), EvidenceLog(tables, "alice", 0)
    header = read_header(tables, "alice")
    assert header is not None
    index = Index(tables, "alice", header.generation)
    await compacted(tables, index, log, log.head(), SEALER)
    assert last_generation(tables, "alice") == 0
    # Nor is it appended to, by a rebuild without a header or by the next one.
    tables.keyed(MEMO).delete(b"alice")
    again = opened(tables, LIMITS)
    assert await again.rebuild()
    assert served(again) == known
    assert await again.compact()
    assert served(again) == known
    assert tables.logs() == [log.next().name]
    disowned = opened(tables, LIMITS)
    assert await disowned.rebuild(disown=True)
    assert disowned.figures()["evidence"] == 1


async def test_a_log_that_is_not_what_its_index_says_is_not_compacted() -> None:
    tables = MemoryTables()
    await filled(tables)
    log = EvidenceLog(tables, "alice", 0)
    header = read_header(tables, "alice")
    assert header is not None
    index = Index(tables, "alice", header.generation)
    with pytest.raises(CorruptObject, match="does not end where"):
        await compacted(tables, index, log, LogHead(3, bytes(32)), SEALER)
    tables.apply([log.append(Kept(v=1, key=seen(advance(99)).key))])
    with pytest.raises(CorruptObject, match="not in its index"):
        await compacted(tables, index, log, log.head(), SEALER)


@pytest.mark.req("DRV-5")
async def test_a_disk_that_is_full_leaves_the_old_log() -> None:
    tables = FailingTables()
    memo = await filled(tables)
    known = served(memo)
    tables.full = True
    assert not await memo.compact()
    tables.full = False
    await memo.mend()
    assert served(memo) == known
    assert await memo.compact()
    assert served(memo) == known
    tables.close()
    with pytest.raises(StoreFault):
        tables.logs()


@given(st.binary(max_size=200))
def test_any_other_bytes_are_no_checkpoint(data: bytes) -> None:
    with pytest.raises(CorruptObject):
        open_checkpoint(data, SEALER.public, "alice")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_checkpoint_that_was_changed_is_none(at: int, flip: int) -> None:
    source = EvidenceLog(MemoryTables(), "alice", 3)
    signed = bytearray(sign_checkpoint(SEALER, "alice", source, LogHead(7, bytes(32))))
    assert open_checkpoint(bytes(signed), SEALER.public, "alice").log == source.name
    signed[at % len(signed)] ^= flip
    with pytest.raises(CorruptObject):
        open_checkpoint(bytes(signed), SEALER.public, "alice")
