"""Event logs in memory: the plain model, and the fake that tests give to rooms.

Stricter than the ones on disk: a batch is a list or a tuple, and an entry has to say itself what is
kept beside it and to name the entry before it, which on disk only `check` looks at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import RLock

from protocol.errors import ContentError
from protocol.events import read_entry
from protocol.ids import EventId, SourceId
from protocol.limits import EQUIVOCATIONS_MAX
from store.event_chain import KeptLog, check_entry, check_page, corrupt, fault_of, judge
from store.events import (
    EntrySize,
    LogRange,
    StoredEvent,
    append_conflict,
    page_of,
    skip_conflict,
)
from store.memory_objects import resolved
from store.memory_tables import MemoryTables
from store.tables import Change, check_change

_EMPTY = KeptLog(1, 0, None, None)


class MemoryEventLogs:
    """`EventLogs` in memory, beside `tables`, which it closes."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._lock = RLock()
        self._kept: dict[SourceId, KeptLog] = {}
        self._entries: dict[SourceId, list[StoredEvent]] = {}
        self._evidence: dict[tuple[SourceId, int, EventId], StoredEvent] = {}

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        self._tables.check_open()
        for batch in (entries, changes):
            if type(batch) is not list and type(batch) is not tuple:
                raise ContentError(f"a batch is a list or a tuple, not a {type(batch).__name__}")
        for entry in entries:
            check_entry(entry)
        for change in changes:
            check_change(change)
        return resolved(lambda: self._append(entries, changes))

    def range(self, source: SourceId) -> LogRange:
        self._tables.check_open()
        kept = self._kept.get(source, _EMPTY)
        return LogRange(kept.first, kept.head, kept.id)

    def ranges(self) -> Mapping[SourceId, LogRange]:
        self._tables.check_open()
        with self._lock:
            return {source: self.range(source) for source in self._kept}

    def read(
        self, source: SourceId, after: int, limit: int, *, bytes_max: int | None = None
    ) -> list[StoredEvent]:
        self._tables.check_open()
        check_page(after, limit)
        with self._lock:
            first = self._kept.get(source, _EMPTY).first
            entries = self._entries.get(source, [])
            start = max(0, after + 1 - first)
            return page_of(entries[start : start + limit], bytes_max)

    def sizes(self, source: SourceId, after: int, limit: int) -> list[EntrySize]:
        page = self.read(source, after, limit)
        return [EntrySize(entry.seq, entry.hlc, len(entry.body)) for entry in page]

    def keep_evidence(self, entry: StoredEvent) -> bool:
        self._tables.check_open()
        check_entry(entry)
        with self._lock:
            for kept in self.read(entry.source, entry.seq - 1, 1):
                if kept.id == entry.id:
                    raise ContentError(f"{entry.id} is the entry of its number, no evidence")
            key = (entry.source, entry.seq, entry.id)
            full = len(self.evidence(entry.source)) >= EQUIVOCATIONS_MAX
            if full or key in self._evidence:
                return False
            self._evidence[key] = entry
            return True

    def evidence(self, source: SourceId) -> list[StoredEvent]:
        self._tables.check_open()
        with self._lock:
            return [self._evidence[key] for key in sorted(self._evidence) if key[0] == source]

    def trim(self, source: SourceId, through: int) -> int:
        self._tables.check_open()
        with self._lock:
            kept = self._kept.get(source, _EMPTY)
            count = min(through, kept.head) - kept.first + 1
            if count <= 0:
                return 0
            gone = self._entries[source][:count]
            del self._entries[source][:count]
            self._kept[source] = kept._replace(first=kept.first + count, before=gone[-1].id)
            return count

    def skip(self, source: SourceId, through: int, id: EventId) -> None:
        self._tables.check_open()
        with self._lock:
            kept = self._kept.get(source, _EMPTY)
            if through <= kept.head:
                raise skip_conflict(source, through, kept.head)
            self._entries[source] = []
            self._kept[source] = KeptLog(through + 1, through, id, id)

    def drop(self, source: SourceId) -> int:
        self._tables.check_open()
        with self._lock:
            self._kept.pop(source, None)
            self._evidence = {key: e for key, e in self._evidence.items() if key[0] != source}
            return len(self._entries.pop(source, []))

    def check(self, *, newest: int | None = None) -> list[SourceId]:
        self._tables.check_open()
        with self._lock:
            for source, kept in self._kept.items():
                finding = judge(kept, self._entries[source])
                if finding.fault is not None:
                    raise corrupt(source, finding.good + 1, finding.fault)
        return []

    def close(self) -> None:
        self._tables.close()

    def _append(self, entries: Sequence[StoredEvent], changes: Sequence[Change]) -> None:
        with self._lock:
            heads: dict[SourceId, KeptLog] = {}
            for entry in entries:
                kept = heads.get(entry.source, self._kept.get(entry.source, _EMPTY))
                if entry.seq != kept.head + 1:
                    raise append_conflict(entry, kept.head + 1)
                wrong = fault_of(entry)
                if wrong is None and read_entry(entry.body)[1].prev != kept.id:
                    wrong = f"it does not follow entry {kept.head}"
                if wrong is not None:
                    raise ContentError(f"{entry.source}: entry {entry.seq}: {wrong}")
                heads[entry.source] = kept._replace(head=entry.seq, id=entry.id)
            self._tables.apply(list(changes))
            self._kept |= heads
            for entry in entries:
                self._entries.setdefault(entry.source, []).append(entry)
