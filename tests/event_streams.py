"""The one stream of events for tests: an aggregator over logs in memory, and what readers get.

`Stream` publishes, retains, skips and forgets as the keeper of sources does. `restart` is a new
aggregator over what is kept, as after a killed process. A source that was forgotten never comes
back: another one, with another key, follows in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.events.aggregator import Aggregator, Delivery, Subscription
from protocol.event_log import START, Position
from protocol.ids import EventId, SourceId
from protocol.signing import SEED_BYTES, Signer
from store.events import StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SIGNERS, entry_after, position, source_of, stored

RING = 6
SOURCES = [source_of(signer) for signer in SIGNERS]


class Stream:
    """An aggregator over logs in memory, and sources to publish from, each called by a letter.
    `positions` are where their logs end, also of those that are `forgotten`."""

    def __init__(self, ring: int = RING) -> None:
        self.logs = MemoryEventLogs(MemoryTables())
        self.ring = ring
        self.positions: dict[SourceId, Position] = {}
        self.forgotten: set[SourceId] = set()
        self.labels = {source: "abc"[number] for number, source in enumerate(SOURCES)}
        self._signers = list(SIGNERS)
        self.restart()

    def restart(self) -> None:
        """A new aggregator over what is kept."""
        self.aggregator = Aggregator(self.logs, entries_max=self.ring)

    def source(self, which: int) -> SourceId:
        """The source that is now number `which`."""
        return source_of(self._signers[which])

    def head(self, source: SourceId) -> int:
        """The newest number that there ever was of `source`."""
        return self.positions.get(source, START).seq

    def publish(self, which: int, count: int = 1, hlc: int | None = None) -> list[StoredEvent]:
        source = self.source(which)
        made = []
        for _ in range(count):
            fields: dict[str, Any] = {} if hlc is None else {"hlc": hlc}
            head = self.positions.get(source, START)
            entry = entry_after(head, signer=self._signers[which], **fields)
            self.positions[source] = position(entry)
            made.append(stored(entry))
        self.logs.append_soon(made).result()
        self.aggregator.publish(made)
        return made

    def skip(self, which: int, count: int) -> None:
        """The next `count` numbers, and what is kept before them, will never come."""
        source = self.source(which)
        head = self.positions.get(source, START)
        after = Position(head.seq + count, EventId.of(b"skipped"), head.hlc)
        self.positions[source] = after
        assert after.id is not None
        self.logs.skip(source, after.seq, after.id)
        self.aggregator.skip(source, after.seq)

    def forget(self, which: int) -> None:
        """The source is no more; another one follows."""
        source = self.source(which)
        self.logs.drop(source)
        self.aggregator.forget(source)
        self.forgotten.add(source)
        number = len(self.labels) + 1
        self._signers[which] = Signer(number.to_bytes(SEED_BYTES, "big"))
        self.labels[self.source(which)] = f"{'abc'[which]}{number}"

    def reader(
        self, after: Mapping[SourceId, int] | None = None, name: str = "session s"
    ) -> Subscription:
        return self.aggregator.subscribe(name, self.labels.get, after or {})


def drained(reader: Subscription) -> list[Delivery]:
    """All that is there for `reader` now."""
    found = []
    while (item := reader.take()) is not None:
        found.append(item)
    return found


def shown(items: list[Delivery]) -> list[tuple[object, ...]]:
    """Entries as (source, number), gaps as (source, first, last, cause)."""
    found: list[tuple[object, ...]] = []
    for item in items:
        if item.entry is not None:
            found.append((item.label, item.entry.seq))
        elif item.gap is not None:
            found.append((item.label, item.gap.first, item.gap.last, item.gap.cause))
    return found


def even(counters: Mapping[str, int], pending: int) -> bool:
    """Whether the accounts come out even, as `actors.events.aggregator` says they do."""
    law = counters["delivered"] + counters["gaps"] - counters["refilled"] + pending
    return law == counters["produced"]
