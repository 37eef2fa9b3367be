"""Tables and logs in one SQLite file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

import apsw

from store.sqlite import Database
from store.tables import (
    KEY_BYTES_MAX,
    LOG_PAGE_ENTRIES,
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

_PUT: Final = """
INSERT INTO keyed (name, key, value, place)
VALUES (?1, ?2, ?3, (SELECT coalesce(max(place), 0) + 1 FROM keyed WHERE name = ?1))
ON CONFLICT (name, key) DO UPDATE SET value = excluded.value
"""
_TRIM: Final = """
DELETE FROM keyed WHERE name = ?1 AND place <= (
  SELECT place FROM keyed WHERE name = ?1 ORDER BY place DESC LIMIT 1 OFFSET ?2)
"""
# By the range of keys, of which no index on the places knows: so those are hidden behind a sign.
_TRIM_PREFIX: Final = """
DELETE FROM keyed WHERE name = ?1 AND key BETWEEN ?3 AND ?4 AND +place <= (
  SELECT place FROM keyed WHERE name = ?1 AND key BETWEEN ?3 AND ?4
  ORDER BY +place DESC LIMIT 1 OFFSET ?2)
"""
_ITEMS: Final = """
SELECT key, value FROM keyed WHERE name = ?1 AND substr(key, 1, length(?2)) = ?2 ORDER BY place
"""
_TAIL: Final = "SELECT seq, digest FROM logs WHERE name = ? ORDER BY seq DESC LIMIT 1"
_APPEND: Final = "INSERT INTO logs (name, seq, previous, digest, body) VALUES (?, ?, ?, ?, ?)"
_ENTRIES: Final = """
SELECT seq, previous, digest, body FROM logs WHERE name = ? AND seq > ? ORDER BY seq LIMIT ?
"""


def _tail(connection: apsw.Connection, name: str) -> LogHead:
    row = connection.execute(_TAIL, (name,)).fetchone()
    return log_start(name) if row is None else LogHead(*row)


def _page(name: str, after: int, connection: apsw.Connection) -> list[LogEntry]:
    bindings = (name, after, LOG_PAGE_ENTRIES)
    return [LogEntry(*row) for row in connection.execute(_ENTRIES, bindings)]


def make_change(connection: apsw.Connection, change: Change) -> int:
    """Makes `change`, inside a submission's transaction; what `Tables.apply` says it did."""
    match change:
        case Put(table, key, value):
            connection.execute(_PUT, (table, key, value))
        case Delete(table, key):
            connection.execute("DELETE FROM keyed WHERE name = ? AND key = ?", (table, key))
        case Trim(table, keep, b""):
            connection.execute(_TRIM, (table, keep))
        case Trim(table, keep, prefix):
            # No key is longer than what fills this up: the last that begins so is not beyond it.
            last = prefix + b"\xff" * KEY_BYTES_MAX
            connection.execute(_TRIM_PREFIX, (table, keep, prefix, last))
        case Append(log, body):
            head = _tail(connection, log)
            seq = head.seq + 1
            row = (log, seq, head.digest, entry_digest(seq, head.digest, body), body)
            connection.execute(_APPEND, row)
            return seq
        case Drop(log):
            connection.execute("DELETE FROM logs WHERE name = ?", (log,))
    return connection.changes()


class SqliteKeyedTable:
    """`KeyedTable` in `database`."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = check_table_name(name)
        self._database = database

    def _make(self, change: Change) -> int:
        check_change(change)
        return self._database.write(lambda connection: make_change(connection, change))

    def put(self, key: bytes, value: bytes) -> None:
        self._make(Put(self.name, key, value))

    def get(self, key: bytes) -> bytes | None:
        bindings = (self.name, check_bytes("key", key, 1, KEY_BYTES_MAX))
        query = "SELECT value FROM keyed WHERE name = ? AND key = ?"
        found: bytes | None = self._database.read(
            lambda connection: connection.execute(query, bindings).get
        )
        return found

    def delete(self, key: bytes) -> bool:
        return bool(self._make(Delete(self.name, key)))

    def items(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        bindings = (self.name, check_bytes("prefix", prefix, 0, KEY_BYTES_MAX))
        return self._database.read(
            lambda connection: [(row[0], row[1]) for row in connection.execute(_ITEMS, bindings)]
        )

    def count(self) -> int:
        query = "SELECT count(*) FROM keyed WHERE name = ?"
        found: int = self._database.read(
            lambda connection: connection.execute(query, (self.name,)).get
        )
        return found

    def trim(self, keep: int, prefix: bytes = b"") -> int:
        return self._make(Trim(self.name, keep, prefix))


class SqliteLogTable:
    """`LogTable` in `database`."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = check_table_name(name)
        self._database = database

    def append(self, body: bytes) -> int:
        change = Append(self.name, body)
        check_change(change)
        return self._database.write(lambda connection: make_change(connection, change))

    def head(self) -> LogHead:
        return self._database.read(lambda connection: _tail(connection, self.name))

    def entries(self, after: int = 0) -> Iterator[LogEntry]:
        while True:
            page = self._database.read(partial(_page, self.name, after))
            yield from page
            if len(page) < LOG_PAGE_ENTRIES:
                return
            after = page[-1].seq

    def verify(self, trusted: LogHead | None = None) -> LogHead:
        return verify_chain(self.name, self.entries(), trusted)


class SqliteTables:
    """`Tables` in `database`, which it owns and closes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def keyed(self, name: str) -> SqliteKeyedTable:
        return SqliteKeyedTable(self.database, name)

    def log(self, name: str) -> SqliteLogTable:
        return SqliteLogTable(self.database, name)

    def apply(self, changes: Sequence[Change]) -> list[int]:
        return self.apply_soon(changes).result()

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        batch = tuple(changes)
        for change in batch:
            check_change(change)
        return self.database.submit(
            lambda connection: [make_change(connection, change) for change in batch]
        )

    def logs(self) -> list[str]:
        query = "SELECT DISTINCT name FROM logs ORDER BY name"
        return self.database.read(
            lambda connection: [str(row[0]) for row in connection.execute(query)]
        )

    def scrub(self) -> None:
        self.database.scrub()

    def close(self) -> None:
        self.database.close()
