"""The one stream: its order, what a slow reader gets, and accounts that always come out even."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actors.events.aggregator import COUNTERS, Aggregator, Delivery, Subscription
from protocol.event_log import START, Position
from protocol.ids import SourceId
from store.events import StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SIGNERS, entry_after, position, source_of, stored

RING = 6
SOURCES = [source_of(signer) for signer in SIGNERS]


class Stream:
    """An aggregator over logs in memory, and sources to publish from."""

    def __init__(self, ring: int = RING) -> None:
        self.logs = MemoryEventLogs(MemoryTables())
        self.ring = ring
        self.positions: dict[SourceId, Position] = {}
        self.restart()

    def restart(self) -> None:
        """A new aggregator over what is kept."""
        self.aggregator = Aggregator(self.logs, entries_max=self.ring)

    def publish(self, which: int, count: int = 1, hlc: int | None = None) -> list[StoredEvent]:
        source = SOURCES[which]
        made = []
        for _ in range(count):
            fields = {} if hlc is None else {"hlc": hlc}
            head = self.positions.get(source, START)
            entry = entry_after(head, signer=SIGNERS[which], **fields)
            self.positions[source] = position(entry)
            made.append(stored(entry))
        self.logs.append_soon(made).result()
        self.aggregator.publish(made)
        return made

    def reader(self, after: dict[SourceId, int] | None = None, name: str = "s") -> Subscription:
        names = {source: "abc"[number] for number, source in enumerate(SOURCES)}
        return self.aggregator.subscribe(name, names.get, after or {})


def drained(reader: Subscription) -> list[Delivery]:
    found = []
    while (item := reader.take()) is not None:
        found.append(item)
    return found


def shown(items: list[Delivery]) -> list[tuple[object, ...]]:
    return [
        (item.label, item.entry.seq)
        if item.entry is not None
        else (item.label, item.gap.first, item.gap.last, item.gap.cause)
        for item in items
        if item.entry is not None or item.gap is not None
    ]


def even(counters: Counter[str], pending: int) -> bool:
    law = counters["delivered"] + counters["gaps"] - counters["refilled"] + pending
    return law == counters["produced"]


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
    reader = stream.reader(name="sally")
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
    reader = stream.reader(name="gone")
    stream.publish(0, 4)
    assert reader.take() is not None
    assert stream.aggregator.pending == 3
    with caplog.at_level(logging.WARNING, "huginn.events"):
        reader.close()
    line = "[event-agg] dropped 3 events for session gone; client must re-fetch from a:1"
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


@dataclass
class Reading:
    """A reader, and everything that it was given, by source."""

    reader: Subscription
    started: dict[SourceId, int]
    delivered: dict[SourceId, list[int]] = field(default_factory=dict)
    overrun: dict[SourceId, set[int]] = field(default_factory=dict)
    gone: dict[SourceId, set[int]] = field(default_factory=dict)

    def take(self) -> bool:
        item = self.reader.take()
        if item is None:
            return False
        if item.entry is not None:
            self.delivered.setdefault(item.source, []).append(item.entry.seq)
        if item.gap is not None:
            assert item.gap.count == item.gap.last - item.gap.first + 1 > 0
            into = self.overrun if item.gap.cause == "overrun" else self.gone
            told = into.setdefault(item.source, set())
            numbers = set(range(item.gap.first, item.gap.last + 1))
            assert not told & numbers, "told once"
            told |= numbers
        return True


class Accounts(RuleBasedStateMachine):
    """Readers at any pace, a small ring, retention, restarts: against what was published."""

    @initialize()
    def begin(self) -> None:
        self.stream = Stream(ring=4)
        self.readings: list[Reading] = []
        self.sums: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    @rule(which=st.integers(0, 2), count=st.integers(1, 7))
    def publish(self, which: int, count: int) -> None:
        self.stream.publish(which, count)

    @precondition(lambda self: len(self.readings) < 4)
    @rule(data=st.data())
    def subscribe(self, data: st.DataObject) -> None:
        heads = {source: self.stream.aggregator.head(source) for source in SOURCES}
        after = {
            source: data.draw(st.integers(0, head))
            for source, head in heads.items()
            if data.draw(st.booleans())
        }
        self.readings.append(Reading(self.stream.reader(after), {**heads, **after}))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), count=st.integers(1, 12))
    def read(self, data: st.DataObject, count: int) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        for _ in range(count):
            reading.take()

    @rule(which=st.integers(0, 2), through=st.integers(1, 40))
    def retain(self, which: int, through: int) -> None:
        self.stream.logs.trim(SOURCES[which], through)

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        self.readings.remove(reading)
        reading.reader.close()
        assert even(reading.reader.counters, 0)
        self.sums += reading.reader.counters

    @rule()
    def restart(self) -> None:
        self.readings.clear()
        self.stream.restart()
        self.sums, self.seen = Counter(), Counter()

    @invariant()
    def accounts_are_even(self) -> None:
        aggregator = self.stream.aggregator
        total = Counter(self.sums)
        for reading in self.readings:
            assert even(reading.reader.counters, reading.reader.pending)
            total += reading.reader.counters
        assert even(aggregator.counters, aggregator.pending)
        for name in COUNTERS:
            assert aggregator.counters[name] == total[name]
            assert aggregator.counters[name] >= self.seen[name], "counters never reset"
        self.seen = Counter(aggregator.counters)

    def teardown(self) -> None:
        """Read to the end, everything published is accounted for, number by number."""
        for reading in getattr(self, "readings", []):
            while reading.take():
                pass
            assert reading.reader.pending == 0
            told = refilled = delivered = 0
            for source in SOURCES:
                numbers = reading.delivered.get(source, [])
                assert numbers == sorted(set(numbers)), "in order, and none twice"
                overrun = reading.overrun.get(source, set())
                gone = reading.gone.get(source, set())
                assert not gone & set(numbers), "what is gone does not come"
                head = self.stream.aggregator.head(source)
                expected = set(range(reading.started[source] + 1, head + 1))
                assert set(numbers) | gone == expected
                assert overrun <= expected
                told += len(overrun | gone)
                refilled += len(overrun & set(numbers))
                delivered += len(numbers)
            counters = reading.reader.counters
            assert (counters["gaps"], counters["refilled"]) == (told, refilled)
            assert counters["delivered"] == delivered
            assert even(counters, 0)


@pytest.mark.req("EVT-6", "EVT-14")
def test_accounts_come_out_even_whatever_happens() -> None:
    examples = max(40, settings().max_examples // 2)
    steps = settings(max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(Accounts, settings=steps)
