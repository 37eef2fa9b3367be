"""What is kept, and for whom."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events.retention import Retention, expired, no_session
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
