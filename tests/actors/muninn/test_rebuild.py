"""Rebuilding: from the whole log or not at all, off to the side."""

from __future__ import annotations

import asyncio

import pytest

from actors.muninn.draft import Draft
from actors.muninn.evidence import EvidenceLog
from actors.muninn.index import Index
from actors.muninn.rebuild import BATCH, Builder
from store.memory_tables import MemoryTables
from store.tables import LogHead
from tests.derivations import SEALER, advance, seen

COUNT = 2 * BATCH + 5
SEEN = [seen(advance(number)) for number in range(COUNT)]
CONFLICT = seen(advance(3, page=1))


@pytest.fixture
def tables() -> MemoryTables:
    """A log over three batches, its conflict in the second; the index 0 beside it."""
    tables = MemoryTables()
    header = Builder(tables, "alice", 100, SEALER.public).begun(0, number=0, damaged=0)
    log = EvidenceLog(tables, "alice", 0)
    draft = Draft(Index(tables, "alice", 0), log, header)
    for entry in (*SEEN[: BATCH + 9], CONFLICT, *SEEN[BATCH + 9 :]):
        step = draft.preview(entry)
        assert step is not None
        draft.append(entry, step)
    tables.apply(draft.changes)
    return tables


async def built(
    tables: MemoryTables, through: LogHead | None = None, resident_max: int = 10**6
) -> Draft | None:
    builder = Builder(tables, "alice", resident_max, SEALER.public)
    return await builder.folded(builder.begun(1, number=0, damaged=3), through)


@pytest.mark.req("DRV-3")
async def test_an_index_comes_back_from_its_log(tables: MemoryTables) -> None:
    before = tables.rows(Index(tables, "alice", 0).guards.name)
    draft = await built(tables, EvidenceLog(tables, "alice", 0).head())
    assert draft is not None
    tables.apply(draft.changes)
    one, other = Index(tables, "alice", 0), Index(tables, "alice", 1)
    assert tables.rows(one.guards.name) == before
    assert other.guards.count() == COUNT == draft.header.guards
    assert all(one.guard(each.key) == other.guard(each.key) for each in SEEN)
    assert sorted(one.resident()) == sorted(other.resident())
    assert one.suspicions() == other.suspicions()
    assert draft.suspects == {CONFLICT.key}
    assert (draft.header.suspects, draft.header.damaged, draft.header.seq) == (1, 3, COUNT + 1)


async def test_what_is_left_of_an_earlier_attempt_is_swept(tables: MemoryTables) -> None:
    stray = Index(tables, "alice", 1)
    guard = Index(tables, "alice", 0).guard(SEEN[0].key)
    assert guard is not None
    tables.apply([stray.put_guard(seen(advance(COUNT + 1)).key, guard)])
    draft = await built(tables)
    assert draft is not None
    tables.apply(draft.changes)
    assert stray.guards.count() == COUNT


async def test_no_more_rows_than_may_be_resident(tables: MemoryTables) -> None:
    draft = await built(tables, resident_max=7)
    assert draft is not None
    tables.apply(draft.changes)
    index = Index(tables, "alice", 1)
    assert [key for key, _ in index.resident()] == [each.key for each in SEEN[-7:]]
    assert index.guards.count() == COUNT


async def test_others_run_between_two_batches(tables: MemoryTables) -> None:
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(other())
    await built(tables)
    task.cancel()
    assert ran >= 2


@pytest.mark.req("DRV-5")
async def test_a_log_that_was_cut_gives_no_index(tables: MemoryTables) -> None:
    log = EvidenceLog(tables, "alice", 0)
    head = log.head()
    del tables._entries[log.name][-2:]
    assert await built(tables, head) is None
    # Nobody can tell without a remembered head: that is what the header is for.
    assert await built(tables) is not None


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("at", [0, BATCH - 1, BATCH, COUNT])
async def test_a_damaged_log_gives_no_index(tables: MemoryTables, at: int) -> None:
    entries = tables._entries[EvidenceLog(tables, "alice", 0).name]
    entries[at] = entries[at]._replace(body=entries[at].body[:-1] + b"\0")
    assert await built(tables) is None


async def test_an_empty_log_gives_an_empty_index() -> None:
    tables = MemoryTables()
    start = EvidenceLog(tables, "alice", 0).head()
    draft = await built(tables, start)
    assert draft is not None
    assert (draft.header.guards, draft.header.seq) == (0, 0)
