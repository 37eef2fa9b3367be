"""Accounts of the one stream: whatever happens, each reader can say what became of every event.

Readers at any pace over a small ring; retention, numbers that never come, sources that end; readers
that leave, that reconnect, and whose service restarts. Against what was published: number by
number, for each reader, over all of its lives, what was delivered and the gaps are what was
produced. Counters never reset within a process; a restart begins them anew, and no reader loses its
place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actors.events.aggregator import COUNTERS, Subscription
from protocol.ids import SourceId
from tests.event_streams import Stream, even
from tests.mutations import Mutation, mutated

WHICH = st.integers(0, 2)
# What goes wrong where a reader goes on and nowhere else, each with what is found of it.
FAULTS = [
    # A gap that was told counts as read, so nothing refills it.
    (("Subscription.marks", "cursor.mark for", "max(cursor.mark, cursor.gap_through) for"), "lost"),
    # The last thing that was read is read again.
    (
        ("Subscription.marks", "cursor.mark for", "max(0, cursor.mark - 1) for"),
        "none twice|told once|does not come",
    ),
    # A service that starts does not see the newest of each log.
    (("Aggregator.__init__", "kept.head for", "max(0, kept.head - 1) for"), "produced|pending"),
]


@dataclass(repr=False)
class Life:
    """A reader from where it began to where it ended, and everything that it was given, by source.
    `over`: sources that were no more when it began."""

    reader: Subscription
    started: dict[SourceId, int]
    over: frozenset[SourceId]
    delivered: dict[SourceId, list[int]] = field(default_factory=lambda: defaultdict(list))
    overrun: dict[SourceId, set[int]] = field(default_factory=lambda: defaultdict(set))
    gone: dict[SourceId, set[int]] = field(default_factory=lambda: defaultdict(set))

    def take(self) -> bool:
        item = self.reader.take()
        if item is None:
            return False
        if item.entry is not None:
            self.delivered[item.source].append(item.entry.seq)
        if item.gap is not None:
            assert item.gap.count == item.gap.last - item.gap.first + 1 > 0
            told = (self.overrun if item.gap.cause == "overrun" else self.gone)[item.source]
            numbers = set(range(item.gap.first, item.gap.last + 1))
            assert not told & numbers, "told once"
            told |= numbers
        return True

    def check(self, stream: Stream) -> None:
        """What its counters say is what it was given, and what was produced for it."""
        mine = [source for source in stream.labels if source not in self.over]
        given = {source: set(self.delivered[source]) for source in mine}
        told = {source: self.overrun[source] | self.gone[source] for source in mine}
        counters = self.reader.counters
        assert counters["delivered"] == sum(map(len, given.values()))
        assert counters["gaps"] == sum(map(len, told.values()))
        assert counters["refilled"] == sum(len(given[each] & told[each]) for each in mine)
        assert even(counters, self.reader.pending)
        produced = sum(stream.head(each) - self.started.get(each, 0) for each in mine)
        assert counters["produced"] == produced, "all that was produced for it"


@dataclass(repr=False)
class Reading:
    """Someone who reads: in one life after another, each from the marks of the one before.
    `unheard`: what a life had not read of a source that was no more when the next one began."""

    started: dict[SourceId, int]
    lives: list[Life]
    unheard: dict[SourceId, set[int]] = field(default_factory=dict)

    @classmethod
    def begun(cls, stream: Stream, after: dict[SourceId, int]) -> Reading:
        started = {source: stream.head(source) for source in stream.labels} | after
        reading = cls(started, [])
        reading._live(stream, started, stream.reader(after))
        return reading

    @property
    def life(self) -> Life:
        return self.lives[-1]

    @property
    def reader(self) -> Subscription:
        return self.life.reader

    def reopen(self, stream: Stream) -> None:
        """Goes on from its marks. Of a source that is no more nothing can be asked."""
        named = self.reader.marks()
        marks = {source: named[label] for source, label in stream.labels.items() if label in named}
        after = {source: at for source, at in marks.items() if source not in stream.forgotten}
        for source in marks.keys() - after.keys():
            self.unheard[source] = set(range(marks[source] + 1, stream.head(source) + 1))
        self._live(stream, after, stream.reader(after))

    def finish(self, stream: Stream) -> None:
        """Reads to the end: of every number since it began it is known what became."""
        while self.life.take():
            pass
        assert self.reader.pending == 0
        self.life.check(stream)
        self.check(stream, to_the_end=True)

    def check(self, stream: Stream, *, to_the_end: bool = False) -> None:
        """Over all lives: what was delivered and the gaps are what was produced, as far as it has
        read."""
        for source in stream.labels:
            numbers = [seq for life in self.lives for seq in life.delivered[source]]
            assert numbers == sorted(set(numbers)), "in order, and none twice"
            gone = self._told(source, "gone")
            assert not gone & set(numbers), "what is gone does not come"
            unheard = self.unheard.get(source, set())
            assert not unheard & (gone | set(numbers))
            known = set(numbers) | gone | unheard
            started = self.started.get(source, 0)
            last = stream.head(source) if to_the_end else max(known, default=started)
            expected = set(range(started + 1, last + 1))
            assert not expected - known, "none is lost"
            assert known == expected
            self._told(source, "overrun")

    def _told(self, source: SourceId, cause: str) -> set[int]:
        """The numbers of gaps, of which no number is told by two lives."""
        each = [getattr(life, cause)[source] for life in self.lives]
        told: set[int] = set().union(*each)
        assert len(told) == sum(map(len, each)), "told once"
        return told

    def _live(self, stream: Stream, started: dict[SourceId, int], reader: Subscription) -> None:
        self.lives.append(Life(reader, started, frozenset(stream.forgotten)))


class Accounts(RuleBasedStateMachine):
    """`sums`: of readers that left in this process. `seen`: the counters of all a step ago.
    `taken`: what was read since one of them, or the process, began anew."""

    @initialize()
    def begin(self) -> None:
        self.stream = Stream(ring=4)
        self.readings: list[Reading] = []
        self.sums: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.taken = 0

    @rule(which=WHICH, count=st.integers(1, 7))
    def publish(self, which: int, count: int) -> None:
        self.stream.publish(which, count)

    @precondition(lambda self: len(self.readings) < 4)
    @rule(data=st.data())
    def subscribe(self, data: st.DataObject) -> None:
        heads = {self.stream.source(which): 0 for which in range(3)}
        heads = {source: self.stream.aggregator.head(source) for source in heads}
        after = {
            source: data.draw(st.integers(0, head))
            for source, head in heads.items()
            if data.draw(st.booleans())
        }
        self.readings.append(Reading.begun(self.stream, after))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), count=st.integers(1, 12))
    def read(self, data: st.DataObject, count: int) -> None:
        self._read(data.draw(st.sampled_from(self.readings)), count)

    @precondition(lambda self: self.readings)
    @rule(
        events=st.lists(st.tuples(WHICH, st.integers(1, 7)), min_size=1), count=st.integers(1, 12)
    )
    def go_on(self, events: list[tuple[int, int]], count: int) -> None:
        """Much happens, and everyone reads a little of it."""
        for which, published in events:
            self.stream.publish(which, published)
            for reading in self.readings:
                self._read(reading, count)

    @rule(which=WHICH, through=st.integers(1, 40))
    def retain(self, which: int, through: int) -> None:
        self.stream.logs.trim(self.stream.source(which), through)

    @rule(which=WHICH, count=st.integers(1, 5))
    def skip(self, which: int, count: int) -> None:
        self.stream.skip(which, count)

    @precondition(lambda self: self._long())
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.stream.forget(data.draw(st.sampled_from(self._long())))

    @precondition(lambda self: len(self.readings) > 2)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Some go in the middle: what they were given so far is whole too."""
        self.readings.remove(reading := data.draw(st.sampled_from(self.readings)))
        reading.check(self.stream)
        self._ended(reading.reader)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def reconnect(self, data: st.DataObject) -> None:
        """Before the service knows that the reader had gone, as lines break."""
        reading = data.draw(st.sampled_from(self.readings))
        before = reading.reader
        reading.reopen(self.stream)
        self._ended(before)
        self.taken = 0

    @precondition(lambda self: self.taken)
    @rule()
    def restart(self) -> None:
        """The process is killed: no reader is closed, and each goes on from its marks."""
        self.stream.restart()
        for reading in self.readings:
            reading.reopen(self.stream)
        self.sums, self.seen = Counter(), Counter()
        self.taken = 0

    def _read(self, reading: Reading, count: int) -> None:
        self.taken += sum(reading.life.take() for _ in range(count))

    def _long(self) -> list[int]:
        """The sources that would be missed."""
        return [which for which in range(3) if self.stream.head(self.stream.source(which)) > 9]

    def _ended(self, reader: Subscription) -> None:
        reader.close()
        assert even(reader.counters, 0)
        self.sums += reader.counters

    @invariant()
    def accounts_are_even(self) -> None:
        aggregator = self.stream.aggregator
        total = Counter(self.sums)
        for reading in self.readings:
            reading.life.check(self.stream)
            total += reading.reader.counters
        assert even(aggregator.counters, aggregator.pending)
        for name in COUNTERS:
            assert aggregator.counters[name] == total[name]
            assert aggregator.counters[name] >= self.seen[name], "never reset within a process"
        self.seen = Counter(aggregator.counters)

    def teardown(self) -> None:
        for reading in getattr(self, "readings", []):
            reading.finish(self.stream)


def steps(examples: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=40)


@pytest.mark.req("EVT-6", "EVT-14")
def test_accounts_come_out_even_whatever_happens() -> None:
    examples = max(100, settings().max_examples // 2)
    run_state_machine_as_test(Accounts, settings=steps(examples))


@pytest.mark.parametrize(("fault", "found"), FAULTS, ids=["skips", "repeats", "forgets"])
def test_what_a_restart_loses_or_doubles_is_found(fault: tuple[str, str, str], found: str) -> None:
    """The control: the accounts with a fault in them do not come out even."""
    only = settings(steps(300), phases=[Phase.generate], report_multiple_bugs=False)
    with (
        mutated(Mutation("actors.events.aggregator", *fault)),
        pytest.raises(AssertionError, match=found),
    ):
        run_state_machine_as_test(Accounts, settings=only)
