"""What is kept, and for whom."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events.retention import Retention, expired, no_session
from protocol.ids import SourceId
from store.events import StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SOURCE, stored_chain
from tests.event_sources import EVERYTHING, Keeper

SECOND = 10**9


def logs(count: int) -> MemoryEventLogs:
    """`count` entries, at 1, 2, … seconds."""
    made = MemoryEventLogs(MemoryTables())
    made.append_soon(stored_chain(count)).result()
    return made


@given(
    count=st.integers(0, 30),
    trimmed=st.integers(0, 30),
    bounds=st.tuples(*[st.none() | st.integers(0, 35)] * 3),
    mark=st.none() | st.integers(0, 30),
)
@pytest.mark.req("EVT-9")
def test_what_expires(
    count: int,
    trimmed: int,
    bounds: tuple[int | None, int | None, int | None],
    mark: int | None,
) -> None:
    """Against each number, one by one."""
    events_max, age_s, unseen_max = bounds
    kept = logs(count)
    kept.trim(SOURCE, trimmed)
    now_s = count + 1
    retention = Retention(
        events_max=events_max,
        age_ns_max=None if age_s is None else age_s * SECOND,
        unseen_max=unseen_max,
    )
    through = expired(kept, SOURCE, retention, now_ns=now_s * SECOND, floor=lambda _: mark)
    for seq in range(kept.range(SOURCE).first, count + 1):
        newer = count - seq
        wanted = (events_max is None or newer < events_max) and (
            age_s is None or now_s - seq <= age_s
        )
        unseen = mark is not None and seq > mark
        saved = unseen and (unseen_max is None or newer < unseen_max)
        assert (seq > through) == (wanted or saved), seq


def test_nothing_goes_by_default_that_is_young() -> None:
    kept = logs(5)
    now_ns = 100 * SECOND
    assert expired(kept, SOURCE, Retention(), now_ns=now_ns, floor=no_session) < 1
    assert expired(kept, SOURCE, EVERYTHING, now_ns=2**62, floor=no_session) < 1


@pytest.mark.req("EVT-9")
async def test_a_sweep_leaves_a_visible_gap(caplog: pytest.LogCaptureFixture) -> None:
    seen = {"mark": 2}
    keeper = Keeper(
        retention=Retention(events_max=3, age_ns_max=None, unseen_max=6),
        floor=lambda _: seen["mark"],
    )
    async with keeper:
        await keeper.add()
        await keeper.emit(*map(str, range(8)))
        with caplog.at_level(logging.WARNING, "huginn.events"):
            assert await keeper.sources.sweep() == 2
        assert caplog.records == [], "a session has yet to see number 3"
        page = await keeper.read(after=2)
        assert (page.gap, len(page.entries)) == (None, 6)
        await keeper.emit(*map(str, range(4)))
        with caplog.at_level(logging.WARNING, "huginn.events"):
            assert await keeper.sources.sweep() == 4
        assert "4 events go that a session has not seen" in caplog.records[0].getMessage()
        page = await keeper.read(after=2)
        assert page.gap is not None
        assert (page.gap.first, page.gap.last, page.gap.count) == (3, 6, 4)
        assert page.gap.cause == "retention"
        assert len(page.entries) == 6


@pytest.mark.req("EVT-9")
async def test_a_sweep_asks_sessions_only_where_something_is_due() -> None:
    """And serves others between two sources."""
    asked: list[SourceId] = []
    turns = 0

    def floor(source: SourceId) -> int | None:
        asked.append(source)
        return None

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    keeper = Keeper(retention=Retention(events_max=3), floor=floor)
    async with keeper:
        rows = [await keeper.add(f"source-{number}") for number in range(20)]
        for row in rows:
            await keeper.emit(*"abc", name=row.name)
        beside = asyncio.create_task(others())
        assert await keeper.sources.sweep() == 0
        beside.cancel()
        assert asked == []
        assert turns >= len(rows)
        await keeper.emit(*"de", name=rows[7].name)
        assert await keeper.sources.sweep() == 2
        assert asked == [rows[7].id]
        # What went is not due again.
        assert await keeper.sources.sweep() == 0
        assert asked == [rows[7].id]


def test_that_nothing_is_too_old_is_seen_in_one_read() -> None:
    class Counted(MemoryEventLogs):
        reads = 0

        def read(
            self, source: SourceId, after: int, limit: int, *, bytes_max: int | None = None
        ) -> list[StoredEvent]:
            self.reads += 1
            return super().read(source, after, limit, bytes_max=bytes_max)

    kept = Counted(MemoryTables())
    kept.append_soon(stored_chain(1000)).result()
    retention = Retention(age_ns_max=10 * SECOND)
    assert expired(kept, SOURCE, retention, now_ns=11 * SECOND, floor=no_session) == 0
    assert kept.reads == 1
    assert expired(kept, SOURCE, retention, now_ns=511 * SECOND, floor=no_session) == 500
    assert kept.reads <= 2 + 10
