"""Appending: dense, chained, in order, durable, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from actors.events.writer import TRIM_EVERY, Draft, LogWriter
from protocol.errors import Conflict, LimitExceeded, NotVisible, StoreFault
from protocol.events import open_entry
from protocol.ids import SourceId
from protocol.limits import EVENT_BYTES_MAX
from store.events import EventLogs, StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from store.tables import Change, Tables
from tests.event_logs import SIGNER, SIGNERS, SOURCE, event_logs, source_of
from tests.worker_rooms import HandClock

OTHER = source_of(SIGNERS[1])


def drafts(*subjects: str) -> list[Draft]:
    return [Draft("Close", subject, {}) for subject in subjects]


class Slow(MemoryEventLogs):
    """Logs whose commits end when the test says so. `fail`: how the next ones end."""

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self.waiting: list[Future[None]] = []
        self.commits: list[int] = []
        self.fail: StoreFault | None = None
        self.held = False

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        self.commits.append(len(entries))
        if self.fail is not None:
            future: Future[None] = Future()
            future.set_exception(self.fail)
            return future
        done = super().append_soon(entries, changes)
        if not self.held:
            return done
        self.waiting.append(Future())
        return self.waiting[-1]


class Writing:
    def __init__(self, logs: EventLogs | None = None, tables: Tables | None = None) -> None:
        memory = MemoryTables()
        self.slow = Slow(memory)
        self.logs: EventLogs = logs or self.slow
        self.tables: Tables = tables or memory
        self.clock = HandClock()
        self.published: list[StoredEvent] = []
        self.writer = self.again()

    def again(self) -> LogWriter:
        writer = LogWriter(self.logs, self.tables, self.clock, self.published.extend)
        for signer in SIGNERS:
            writer.open(signer)
        return writer

    async def append(
        self, *subjects: str, key: str | None = None, source: SourceId = SOURCE
    ) -> list[int]:
        asked = repr(subjects).encode()
        done = await self.writer.append(source, drafts(*subjects), key, asked)
        return [each.seq for each in done.events]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.req("EVT-2")
async def test_what_is_appended_is_a_chain_signed_by_its_source() -> None:
    at = Writing()
    assert await at.append("a", "b") == [1, 2]
    assert await at.append("c") == [3]
    prev = None
    entries = at.logs.read(SOURCE, 0, 9)
    for seq, entry in enumerate(entries, 1):
        id, event = open_entry(entry.body, SIGNER.public)
        assert (event.seq, event.prev, id) == (seq, prev, entry.id)
        prev = id
    assert at.published == entries
    at.logs.check()


async def test_time_grows_over_all_sources_also_when_the_clock_goes_back() -> None:
    at = Writing()
    await at.append("a")
    at.clock.now_ns -= 10**12
    await at.append("b", source=OTHER)
    # A restart, with the clock still back and the log empty by retention.
    at.logs.trim(SOURCE, 9)
    at.writer = at.again()
    await at.append("c")
    at.clock.now_ns += 10**15
    await at.append("d", source=OTHER)
    times = [entry.hlc for entry in at.published]
    assert times == sorted(set(times))
    assert times[-1] == at.clock.now_ns


async def test_what_arrives_meanwhile_shares_the_next_commit() -> None:
    at = Writing()
    at.slow.held = True
    tasks = [asyncio.create_task(at.append("first"))]
    await settle()
    tasks += [asyncio.create_task(at.append(str(number), "x")) for number in range(5)]
    await settle()
    assert (at.slow.commits, at.published) == ([1], [])
    assert not tasks[0].done(), "nothing is told that is not durable"
    at.slow.held = False
    at.slow.waiting[0].set_result(None)
    assert await asyncio.gather(*tasks) == [[1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert at.slow.commits == [1, 10]


async def test_an_append_goes_on_without_its_caller() -> None:
    at = Writing()
    at.slow.held = True
    task = asyncio.create_task(at.append("a", key="k"))
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    at.slow.held = False
    at.slow.waiting[0].set_result(None)
    assert await at.append("a", key="k") == [1]
    assert [entry.seq for entry in at.published] == [1]


async def test_a_failed_commit_is_everybodys_and_leaves_nothing() -> None:
    at = Writing()
    await at.append("a")
    at.slow.fail = StoreFault("the disk is full")
    told = await asyncio.gather(at.append("b"), at.append("c", key="k"), return_exceptions=True)
    assert [type(each) for each in told] == [StoreFault, StoreFault]
    at.slow.fail = None
    assert await at.append("c", key="k") == [2]
    at.logs.check()


async def test_one_that_is_too_large_is_refused_alone() -> None:
    at = Writing()
    large = [Draft("Close", "x", {"text": "t" * EVENT_BYTES_MAX})]
    told = await asyncio.gather(
        at.append("a"),
        at.writer.append(SOURCE, [*drafts("good"), *large], "k", b""),
        at.append("b"),
        return_exceptions=True,
    )
    assert told[0] == [1]
    assert isinstance(told[1], LimitExceeded)
    assert told[2] == [2]
    at.logs.check()


async def test_a_key_is_one_append_of_one_source() -> None:
    at = Writing()
    assert await asyncio.gather(*(at.append("a", "b", key="k") for _ in range(3))) == [[1, 2]] * 3
    assert await at.append("a", "b", key="k", source=OTHER) == [1, 2]
    with pytest.raises(Conflict, match="key"):
        await at.append("other", key="k")
    at.writer = at.again()
    assert await at.append("a", "b", key="k") == [1, 2]
    assert at.logs.range(SOURCE).head == 2


@pytest.mark.req("AUT-3")
async def test_what_others_append_forgets_no_key() -> None:
    at = Writing()
    at.writer = LogWriter(at.logs, at.tables, at.clock, at.published.extend, keys_max=2)
    for signer in SIGNERS:
        at.writer.open(signer)
    first = await at.append("a", key="first")
    for number in range(TRIM_EVERY):
        await at.append("b", key=str(number), source=OTHER)
    assert await at.append("a", key="first") == first
    assert len(at.tables.keyed("appends").items(OTHER.digest)) == 2
    # One's own do: an old key is a new one again.
    for number in range(TRIM_EVERY - 1):
        await at.append("b", key=str(number))
    assert await at.append("a", key="first") != first
    at.writer.forget(SOURCE)
    assert [key[:32] for key, _ in at.tables.keyed("appends").items()] == [OTHER.digest] * 2


async def test_a_closed_source_takes_nothing_and_what_was_asked_for_is_done() -> None:
    at = Writing()
    at.slow.held = True
    task = asyncio.create_task(at.append("a"))
    await settle()
    closing = asyncio.create_task(at.writer.close(SOURCE))
    await settle()
    assert not closing.done()
    with pytest.raises(NotVisible):
        await at.append("b")
    at.slow.held = False
    at.slow.waiting[0].set_result(None)
    await closing
    assert await task == [1]
    await at.writer.close(SOURCE)
    await at.writer.drain()


async def test_many_at_once_on_disk(tmp_path: Path) -> None:
    at = Writing(*event_logs("sqlite", tmp_path))
    try:
        asks = [at.append(str(n), source=(SOURCE, OTHER)[n % 2]) for n in range(200)]
        await asyncio.gather(*asks)
        assert (at.logs.range(SOURCE).head, at.logs.range(OTHER).head) == (100, 100)
        assert at.logs.check() == []
    finally:
        at.logs.close()
