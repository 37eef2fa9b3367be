"""The aggregator: every source's log, merged into one stream for each reader.

What became durable is published into one bounded ring. A reader has a cursor for each source and
gets, of what it has not read, the entry that is first by (hlc, source, seq): each source in its own
order always, and all of them in one order as far as they are there. A reader that is slower than
the ring finds the oldest dropped. It is told so, in band and before the next entry of that source,
by a `Gap`; a line is logged; and then it is given from the log what the log still has of the gap.

The accounts of a reader, and their sums over all, hold at every moment and never reset within a
process (a reader that goes on from its marks lacks nothing and has nothing twice, also after a
restart, but its accounts begin anew):

    delivered + gaps − refilled + pending = produced

`produced`: entries that came to be while it read, or lay behind its cursor when it began.
`delivered`: given to it, from ring or log. `gaps`: entries that it was told it missed; the
`dropped` ones of these fell out of the ring, the others out of retention. `refilled`: entries of a
gap that were delivered after all. `pending`: not looked at yet. A reader that goes away leaves what
was pending as dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from actors.events.ring import RING_BYTES_MAX, RING_ENTRIES_MAX, Ring
from protocol.ids import SourceId
from protocol.messages.events import Gap
from store.events import EventLogs, StoredEvent

log = logging.getLogger("huginn.events")

# Entries of one source that are read ahead from its log for one reader.
_AHEAD_MAX: Final = 16

COUNTERS: Final = ("produced", "delivered", "gaps", "dropped", "refilled")


class Delivery(NamedTuple):
    """One thing that a reader gets: an entry of `source`, or a gap in it. `label` is the source's
    name as the reader has it."""

    source: SourceId
    label: str
    entry: StoredEvent | None = None
    gap: Gap | None = None


@dataclass
class _Cursor:
    """Where a reader is in one source. `mark`: the last number that it is done with; `head`: the
    newest it may have. `behind`: it reads from the log. Up to `gap_through` it was told of a gap
    already. `ended`: the source is no more."""

    source: SourceId
    label: str
    mark: int
    head: int
    behind: bool
    gap_through: int = 0
    ended: bool = False
    ahead: deque[StoredEvent] = field(default_factory=deque)

    @property
    def pending(self) -> int:
        # Of what lies in a gap that was told, nothing is pending: it is in the accounts.
        return self.head - max(self.mark, self.gap_through)


class Aggregator:
    """The one stream over `logs`. `counters` are the sums over all readers there ever were."""

    def __init__(
        self,
        logs: EventLogs,
        *,
        entries_max: int = RING_ENTRIES_MAX,
        bytes_max: int = RING_BYTES_MAX,
    ) -> None:
        self.logs = logs
        self.ring = Ring(entries_max, bytes_max)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._heads = {source: kept.head for source, kept in logs.ranges().items()}
        self._readers: set[Subscription] = set()

    @property
    def readers(self) -> int:
        """How many read now."""
        return len(self._readers)

    @property
    def pending(self) -> int:
        """What the readers of now have not looked at, together."""
        return sum(reader.pending for reader in self._readers)

    def head(self, source: SourceId) -> int:
        """The newest number of `source` that was published, or lay in its log at the start."""
        return self._heads.get(source, 0)

    def publish(self, entries: Sequence[StoredEvent]) -> None:
        """Takes entries that are durable now; each source's in order, none left out."""
        for entry in entries:
            before = self.head(entry.source)
            self._heads[entry.source] = entry.seq
            self.ring.put(entry)
            for reader in self._readers:
                reader.note(entry.source, before, entry.seq)

    def skip(self, source: SourceId, through: int) -> None:
        """Numbers up to `through` will never come: a gap for whoever had not read so far."""
        before = self.head(source)
        self._heads[source] = through
        self.ring.forget(source)
        for reader in self._readers:
            reader.note(source, before, through, behind=True)

    def forget(self, source: SourceId) -> None:
        """The source and its log are gone: a gap for whoever had not read them whole."""
        self._heads.pop(source, None)
        self.ring.forget(source)
        for reader in self._readers:
            reader.end(source)

    def subscribe(
        self,
        name: str,
        label_of: Callable[[SourceId], str | None],
        after: Mapping[SourceId, int],
    ) -> Subscription:
        """A reader, which has to be closed. `name` is what it is and is called (`session S`, or
        `reader R` where it is no session's), as the log tells of it.

        `label_of` says how the reader calls a source, None for one that is not for it. Sources in
        `after` are read from that number on, others from now on.
        """
        reader = Subscription(self, name, label_of, after, self._heads)
        self._readers.add(reader)
        return reader

    def left(self, reader: Subscription) -> None:
        self._readers.discard(reader)


class Subscription:
    """One reader's place in the stream. Made by `Aggregator.subscribe`."""

    def __init__(
        self,
        aggregator: Aggregator,
        name: str,
        label_of: Callable[[SourceId], str | None],
        after: Mapping[SourceId, int],
        heads: Mapping[SourceId, int],
    ) -> None:
        self.name = name
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._aggregator = aggregator
        self._label_of = label_of
        self._cursors: dict[SourceId, _Cursor] = {}
        self._news = asyncio.Event()
        for source, mark in after.items():
            self._admit(source, mark, heads.get(source, 0))
        for source, head in heads.items():
            if source not in after:
                self._admit(source, head, head)

    @property
    def pending(self) -> int:
        """Entries that were produced for this reader and not looked at yet."""
        return sum(cursor.pending for cursor in self._cursors.values())

    def marks(self) -> dict[str, int]:
        """How far the reader is, by its names of sources."""
        return {cursor.label: cursor.mark for cursor in self._cursors.values()}

    def note(self, source: SourceId, before: int, head: int, *, behind: bool = False) -> None:
        """The log of `source` grew from `before` to `head`; `behind`: not by way of the ring."""
        cursor = self._cursors.get(source)
        if cursor is None:
            self._admit(source, before, head)
        elif not cursor.ended:
            cursor.head = head
            cursor.behind = cursor.behind or behind
            self._count("produced", head - before)
        self._news.set()

    def end(self, source: SourceId) -> None:
        """The log of `source` is no more."""
        cursor = self._cursors.get(source)
        if cursor is not None:
            cursor.ended, cursor.behind = True, True
            cursor.ahead.clear()
            self._news.set()

    async def next(self) -> Delivery | None:
        """The next entry or gap, as soon as there is one; None once every source that it reads has
        ended. One caller at a time."""
        while (found := self.take()) is None:
            if self._cursors and all(cursor.ended for cursor in self._cursors.values()):
                return None
            self._news.clear()
            await self._news.wait()
        return found

    def take(self) -> Delivery | None:
        """The next entry or gap that is there now."""
        first: StoredEvent | None = None
        for cursor in [each for each in self._cursors.values() if each.mark < each.head]:
            found = self._peek(cursor)
            if isinstance(found, Gap):
                return Delivery(cursor.source, cursor.label, gap=found)
            if found is not None and (first is None or _order(found) < _order(first)):
                first = found
        if first is None:
            return None
        cursor = self._cursors[first.source]
        self._pass(cursor, first)
        return Delivery(first.source, cursor.label, entry=first)

    def close(self) -> None:
        """The reader goes. What it had not looked at counts as dropped, and is told of."""
        for cursor in self._cursors.values():
            if cursor.pending:
                self._drop(cursor, cursor.pending, max(cursor.mark, cursor.gap_through))
        self._cursors.clear()
        self._aggregator.left(self)

    # -- one source --------------------------------------------------------------------------

    def _admit(self, source: SourceId, mark: int, head: int) -> None:
        label = self._label_of(source)
        if label is not None:
            behind = mark < head and not self._is_in_ring(source, mark + 1)
            self._cursors[source] = _Cursor(source, label, mark, head, behind)
            self._count("produced", head - mark)

    def _is_in_ring(self, source: SourceId, seq: int) -> bool:
        tail = self._aggregator.ring.tail(source)
        return bool(tail) and tail[0].seq <= seq

    def _peek(self, cursor: _Cursor) -> StoredEvent | Gap | None:
        """What comes next of a source, of which there is something."""
        seq = cursor.mark + 1
        if not cursor.ended and self._is_in_ring(cursor.source, seq):
            cursor.behind = False
            cursor.ahead.clear()
            tail = self._aggregator.ring.tail(cursor.source)
            return tail[seq - tail[0].seq]
        if not cursor.behind:
            return self._overrun(cursor)
        if not cursor.ahead and not cursor.ended:
            limit = min(_AHEAD_MAX, cursor.head - cursor.mark)
            cursor.ahead.extend(self._aggregator.logs.read(cursor.source, cursor.mark, limit))
        if cursor.ahead and cursor.ahead[0].seq == seq:
            return cursor.ahead[0]
        last = cursor.ahead[0].seq - 1 if cursor.ahead else cursor.head
        return self._gone(cursor, min(last, cursor.head))

    def _overrun(self, cursor: _Cursor) -> Gap:
        """The ring has dropped what comes next: a gap, and from here on the log is read."""
        tail = self._aggregator.ring.tail(cursor.source)
        first, last = cursor.mark + 1, tail[0].seq - 1 if tail else cursor.head
        cursor.behind = True
        self._drop(cursor, last - max(cursor.mark, cursor.gap_through), cursor.mark)
        cursor.gap_through = last
        return _gap(cursor.source, first, last, "overrun")

    def _gone(self, cursor: _Cursor, last: int) -> Gap:
        """Not in the log either: retention, or the source's end."""
        first = cursor.mark + 1
        self._count("gaps", last - max(cursor.mark, min(cursor.gap_through, last)))
        cursor.mark = last
        cursor.ahead.clear()
        return _gap(cursor.source, first, last, "retention")

    def _pass(self, cursor: _Cursor, entry: StoredEvent) -> None:
        cursor.mark = entry.seq
        if cursor.ahead:
            cursor.ahead.popleft()
        self._count("delivered", 1)
        if entry.seq <= cursor.gap_through:
            self._count("refilled", 1)

    def _drop(self, cursor: _Cursor, count: int, mark: int) -> None:
        self._count("gaps", count)
        self._count("dropped", count)
        log.warning(
            "[event-agg] dropped %d events for %s; client must re-fetch from %s",
            count,
            self.name,
            f"{cursor.label}:{mark}",
        )

    def _count(self, name: str, by: int) -> None:
        self.counters[name] += by
        self._aggregator.counters[name] += by


def _order(entry: StoredEvent) -> tuple[int, bytes, int]:
    return entry.hlc, entry.source.digest, entry.seq


def _gap(source: SourceId, first: int, last: int, cause: Literal["overrun", "retention"]) -> Gap:
    return Gap(source=source, first=first, last=last, count=last - first + 1, cause=cause)
