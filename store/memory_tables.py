"""Tables and logs in memory: the plain model, and the fake that tests give to rooms.

Stricter than the one on disk where the contract leaves room: a batch is a list or a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from threading import RLock

from protocol.errors import ContentError, StoreFault
from store.memory_objects import resolved
from store.tables import (
    KEY_BYTES_MAX,
    Append,
    Change,
    Delete,
    Drop,
    LogEntry,
    LogHead,
    Put,
    Trim,
    check_bytes,
    check_change,
    check_table_name,
    entry_digest,
    log_start,
    verify_chain,
)


class MemoryTables:
    """`Tables` in memory."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._rows: dict[str, dict[bytes, bytes]] = {}
        self._entries: dict[str, list[LogEntry]] = {}
        self._closed = False

    def check_open(self) -> None:
        """Raises StoreFault after `close`."""
        if self._closed:
            raise StoreFault("the store is closed")

    def keyed(self, name: str) -> MemoryKeyedTable:
        return MemoryKeyedTable(self, name)

    def log(self, name: str) -> MemoryLogTable:
        return MemoryLogTable(self, name)

    def apply(self, changes: Sequence[Change]) -> list[int]:
        return self.apply_soon(changes).result()

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        self.check_open()
        if type(changes) is not list and type(changes) is not tuple:
            raise ContentError(f"changes are a list or a tuple, not a {type(changes).__name__}")
        for change in changes:
            check_change(change)
        with self._lock:
            return resolved(lambda: [self._make(change) for change in changes])

    def logs(self) -> list[str]:
        self.check_open()
        return sorted(self._entries)

    def scrub(self) -> None:
        self.check_open()

    def close(self) -> None:
        self._closed = True

    def rows(self, name: str) -> dict[bytes, bytes]:
        """A copy of a table."""
        self.check_open()
        with self._lock:
            return dict(self._rows.get(name, {}))

    def entries(self, name: str) -> list[LogEntry]:
        """A copy of a log."""
        self.check_open()
        with self._lock:
            return list(self._entries.get(name, []))

    def _make(self, change: Change) -> int:
        match change:
            case Put(table, key, value):
                self._rows.setdefault(table, {})[key] = value
                return 1
            case Delete(table, key):
                return 0 if self._rows.get(table, {}).pop(key, None) is None else 1
            case Trim(table, keep, prefix):
                rows = self._rows.get(table, {})
                those = [key for key in rows if key.startswith(prefix)]
                oldest = those[: max(0, len(those) - keep)]
                for key in oldest:
                    del rows[key]
                return len(oldest)
            case Append(log, body):
                entries = self._entries.setdefault(log, [])
                previous = entries[-1].digest if entries else log_start(log).digest
                seq = len(entries) + 1
                entries.append(LogEntry(seq, previous, entry_digest(seq, previous, body), body))
                return seq
            case Drop(log):
                return len(self._entries.pop(log, []))


class MemoryKeyedTable:
    """`KeyedTable` in `tables`."""

    def __init__(self, tables: MemoryTables, name: str) -> None:
        self.name = check_table_name(name)
        self._tables = tables

    def put(self, key: bytes, value: bytes) -> None:
        self._tables.apply([Put(self.name, key, value)])

    def get(self, key: bytes) -> bytes | None:
        return self._tables.rows(self.name).get(check_bytes("key", key, 1, KEY_BYTES_MAX))

    def delete(self, key: bytes) -> bool:
        return bool(self._tables.apply([Delete(self.name, key)])[0])

    def items(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        check_bytes("prefix", prefix, 0, KEY_BYTES_MAX)
        rows = self._tables.rows(self.name).items()
        return [(key, value) for key, value in rows if key.startswith(prefix)]

    def count(self) -> int:
        return len(self._tables.rows(self.name))

    def trim(self, keep: int, prefix: bytes = b"") -> int:
        return self._tables.apply([Trim(self.name, keep, prefix)])[0]


class MemoryLogTable:
    """`LogTable` in `tables`."""

    def __init__(self, tables: MemoryTables, name: str) -> None:
        self.name = check_table_name(name)
        self._tables = tables

    def append(self, body: bytes) -> int:
        return self._tables.apply([Append(self.name, body)])[0]

    def head(self) -> LogHead:
        entries = self._tables.entries(self.name)
        return LogHead(entries[-1].seq, entries[-1].digest) if entries else log_start(self.name)

    def entries(self, after: int = 0) -> Iterator[LogEntry]:
        return iter(self._tables.entries(self.name)[max(0, after) :])

    def verify(self, trusted: LogHead | None = None) -> LogHead:
        return verify_chain(self.name, self.entries(), trusted)
