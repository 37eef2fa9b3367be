"""The one stream: its order, what a slow reader gets, and what becomes of what was not read."""

from __future__ import annotations

import asyncio
import logging

import pytest

from actors.events.aggregator import Aggregator
from protocol.event_log import Position
from tests.event_streams import RING, SOURCES, Stream, drained, even, shown


@pytest.mark.req("EVT-10")
def test_the_order_is_by_time_then_source_then_number() -> None:
    stream = Stream(ring=100)
    reader = stream.reader()
    entries = []
    for which, hlc in [(0, 5), (1, 3), (2, 5), (1, 5), (0, 9), (2, 6), (1, 6)]:
        entries += stream.publish(which, hlc=hlc)
    expected = sorted(entries, key=lambda each: (each.hlc, each.source.digest, each.seq))
    assert [item.entry for item in drained(reader)] == expected
    # From the log, with nothing in the ring, it is the same.
    stream.restart()
    again = stream.reader(dict.fromkeys(SOURCES, 0))
    assert [item.entry for item in drained(again)] == expected
    assert even(again.counters, again.pending)


@pytest.mark.req("EVT-6")
def test_a_slow_reader_is_told_and_then_given_what_the_log_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream()
    reader = stream.reader(name="session sally")
    stream.publish(0, 2)
    assert shown(drained(reader)) == [("a", 1), ("a", 2)]
    with caplog.at_level(logging.WARNING, "huginn.events"):
        stream.publish(0, RING + 3)
        first = reader.take()
    assert first is not None
    assert shown([first]) == [("a", 3, 5, "overrun")]
    line = "[event-agg] dropped 3 events for session sally; client must re-fetch from a:2"
    assert [record.getMessage() for record in caplog.records] == [line]
    assert shown(drained(reader)) == [("a", seq) for seq in range(3, RING + 6)]
    told = {"produced": 11, "delivered": 11, "gaps": 3, "dropped": 3, "refilled": 3}
    assert dict(reader.counters) == told


@pytest.mark.req("EVT-6")
def test_what_retention_took_of_a_gap_stays_one() -> None:
    stream = Stream()
    reader = stream.reader()
    stream.publish(0, RING + 5)
    stream.logs.trim(SOURCES[0], 3)
    found = shown(drained(reader))
    assert found[:2] == [("a", 1, 5, "overrun"), ("a", 1, 3, "retention")]
    assert found[2:] == [("a", seq) for seq in range(4, RING + 6)]
    assert (reader.counters["gaps"], reader.counters["refilled"]) == (5, 2)
    assert even(reader.counters, 0)


def test_one_source_cannot_hide_what_another_lost() -> None:
    stream = Stream()
    reader = stream.reader()
    stream.publish(1, 2)
    stream.publish(0, RING)
    found = shown(drained(reader))
    assert found[0] == ("b", 1, 2, "overrun")
    assert sorted(found[1:]) == [("a", seq) for seq in range(1, RING + 1)] + [("b", 1), ("b", 2)]


def test_large_entries_fill_the_ring_by_their_bytes() -> None:
    stream = Stream()
    size = len(stream.publish(0, 2)[1].body)
    stream.aggregator = Aggregator(stream.logs, bytes_max=3 * size + size // 2)
    reader = stream.reader()
    stream.publish(0, 5)
    assert shown(drained(reader))[0] == ("a", 3, 4, "overrun")


def test_a_source_that_ends_is_a_gap_of_what_was_not_read() -> None:
    stream = Stream()
    reader = stream.reader()
    stream.publish(0, 3)
    assert reader.take() is not None
    stream.logs.drop(SOURCES[0])
    stream.aggregator.forget(SOURCES[0])
    assert shown(drained(reader)) == [("a", 2, 3, "retention")]
    assert even(reader.counters, reader.pending)


def test_numbers_that_will_never_come_are_a_gap() -> None:
    stream = Stream()
    reader = stream.reader()
    (entry,) = stream.publish(0)
    drained(reader)
    stream.logs.skip(SOURCES[0], 9, entry.id)
    stream.aggregator.skip(SOURCES[0], 9)
    stream.positions[SOURCES[0]] = Position(9, entry.id, entry.hlc)
    stream.publish(0)
    assert shown(drained(reader)) == [("a", 2, 9, "retention"), ("a", 10)]
    assert even(reader.counters, reader.pending)


def test_who_leaves_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    reader = stream.reader(name="reader gone")
    stream.publish(0, 4)
    assert reader.take() is not None
    assert stream.aggregator.pending == 3
    with caplog.at_level(logging.WARNING, "huginn.events"):
        reader.close()
    line = "[event-agg] dropped 3 events for reader gone; client must re-fetch from a:1"
    assert [record.getMessage() for record in caplog.records] == [line]
    assert (stream.aggregator.readers, stream.aggregator.pending) == (0, 0)
    assert even(stream.aggregator.counters, 0)
    # Re-fetched from there nothing lacks.
    assert shown(drained(stream.reader({SOURCES[0]: 1}))) == [("a", 2), ("a", 3), ("a", 4)]


async def test_a_reader_waits_for_what_comes() -> None:
    stream = Stream()
    reader = stream.reader()
    waiting = asyncio.create_task(reader.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.publish(2)
    async with asyncio.timeout(30):
        found = await waiting
        assert found is not None
        assert shown([found]) == [("c", 1)]


async def test_who_reads_what_has_ended_waits_for_nothing() -> None:
    stream = Stream()
    stream.publish(0)
    reader = stream.reader({SOURCES[0]: 0})
    stream.aggregator.forget(SOURCES[0])
    async with asyncio.timeout(30):
        gap = await reader.next()
        assert gap is not None
        assert shown([gap]) == [("a", 1, 1, "retention")]
        assert await reader.next() is None
