"""The ring: the newest entries of all sources, in memory, bounded, the oldest dropped first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from protocol.ids import SourceId
from store.events import StoredEvent

# What a reader may be behind before it has to go to the log, in entries and in their bytes.
RING_ENTRIES_MAX: Final = 4096
RING_BYTES_MAX: Final = 32 * 1024 * 1024


class Ring:
    """At most `entries_max` entries and `bytes_max` bytes, of all sources together."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._order: deque[SourceId] = deque()
        self._tails: dict[SourceId, deque[StoredEvent]] = {}

    def put(self, entry: StoredEvent) -> None:
        """Takes the next entry of its source; others, or itself, may have to go for it."""
        self._order.append(entry.source)
        self._tails.setdefault(entry.source, deque()).append(entry)
        self._bytes += len(entry.body)
        while len(self._order) > self._entries_max or self._bytes > self._bytes_max:
            self._drop_oldest()

    def tail(self, source: SourceId) -> Sequence[StoredEvent]:
        """What is held of `source`: dense, up to its newest."""
        return self._tails.get(source, ())

    def forget(self, source: SourceId) -> None:
        gone = self._tails.pop(source, ())
        self._bytes -= sum(len(entry.body) for entry in gone)
        self._order = deque(each for each in self._order if each != source)

    def _drop_oldest(self) -> None:
        source = self._order.popleft()
        tail = self._tails[source]
        self._bytes -= len(tail.popleft().body)
        if not tail:
            del self._tails[source]
