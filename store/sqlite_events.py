"""Event logs in one SQLite file, beside its tables: an append and their changes are one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final
from zlib import crc32

import apsw

from protocol.errors import ContentError
from protocol.ids import EventId, SourceId
from protocol.limits import EQUIVOCATIONS_MAX
from store.event_chain import (
    Finding,
    KeptLog,
    check_entry,
    check_page,
    corrupt,
    fault_of,
    judge,
)
from store.events import (
    EntrySize,
    LogRange,
    StoredEvent,
    append_conflict,
    page_of,
    skip_conflict,
)
from store.sqlite import Database
from store.sqlite_tables import make_change
from store.tables import Change, check_change

# Entries that one transaction erases: others wait for as long as that takes.
TRIM_ENTRIES: Final = 256
# Entries that one snapshot reads while a log is walked, unless they are large.
_WALK_ENTRIES: Final = 256
_WALK_BYTES: Final = 16 * 1024 * 1024

_KEPT: Final = "SELECT first, head, before, id, number FROM event_sources WHERE source = ?"
_OPEN: Final = "INSERT INTO event_sources (source, first, head) VALUES (?, 1, 0)"
_INSERT: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_HEAD: Final = "UPDATE event_sources SET head = ?, id = ? WHERE number = ?"
_PAGE: Final = """
SELECT seq, id, hlc, kind, body, crc FROM events WHERE source = ? AND seq > ? ORDER BY seq LIMIT ?
"""
# The length of a body is beside it: SQLite does not read the body for it.
_SIZES: Final = """
SELECT seq, hlc, length(body) FROM events WHERE source = ? AND seq > ? ORDER BY seq LIMIT ?
"""
# More than an integer of SQLite's holds is more than there ever is.
_MOST: Final = 2**62
_EVIDENCE: Final = """
SELECT seq, id, hlc, kind, body, crc FROM event_evidence WHERE source = ? ORDER BY seq, id
"""
_KEEP: Final = "INSERT OR IGNORE INTO event_evidence VALUES (?, ?, ?, ?, ?, ?, ?)"
_NOTHING: Final = KeptLog(1, 0, None, None)


def _id(digest: bytes | None) -> EventId | None:
    return None if digest is None else EventId(digest)


def _kept(connection: apsw.Connection, source: SourceId) -> tuple[KeptLog, int | None]:
    """What is recorded of `source`, and its number in this file (None: not there)."""
    row = connection.execute(_KEPT, (source.digest,)).fetchone()
    if row is None:
        return _NOTHING, None
    return KeptLog(row[0], row[1], _id(row[2]), _id(row[3])), row[4]


def _event(source: SourceId, row: tuple[Any, ...]) -> StoredEvent:
    seq, id, hlc, kind, body, crc = row
    # Bytes with another sum are damaged, if only in the signature, and are read as none.
    return StoredEvent(source, seq, EventId(id), hlc, kind, body if crc32(body) == crc else b"")


def _row(place: int | bytes, entry: StoredEvent) -> tuple[int | bytes | str, ...]:
    """The row of `entry`, under its source's number, or its source."""
    body = entry.body
    return (place, entry.seq, entry.id.digest, entry.hlc, entry.kind, body, crc32(body))


def _append(
    entries: Sequence[StoredEvent], changes: Sequence[Change], connection: apsw.Connection
) -> None:
    """Adds the entries, inside a submission's transaction, and makes the changes."""
    heads: dict[SourceId, tuple[int, int, EventId | None]] = {}
    for entry in entries:
        if entry.source not in heads:
            kept, number = _kept(connection, entry.source)
            if number is None:
                connection.execute(_OPEN, (entry.source.digest,))
                number = connection.last_insert_rowid()
            heads[entry.source] = number, kept.head, kept.id
        number, head, _ = heads[entry.source]
        if entry.seq != head + 1:
            raise append_conflict(entry, head + 1)
        connection.execute(_INSERT, _row(number, entry))
        heads[entry.source] = number, entry.seq, entry.id
    for number, head, id in heads.values():
        connection.execute(_HEAD, (head, None if id is None else id.digest, number))
    for change in changes:
        make_change(connection, change)


def _page(
    source: SourceId, after: int, limit: int, bytes_max: int | None, connection: apsw.Connection
) -> tuple[KeptLog, list[StoredEvent]]:
    kept, number = _kept(connection, source)
    rows = connection.execute(_PAGE, (number, after, limit))
    return kept, page_of((_event(source, row) for row in rows), bytes_max)


def _sizes(
    source: SourceId, after: int, limit: int, connection: apsw.Connection
) -> tuple[KeptLog, list[EntrySize]]:
    kept, number = _kept(connection, source)
    rows = connection.execute(_SIZES, (number, after, limit))
    return kept, [EntrySize(*row) for row in rows]


def _keep(entry: StoredEvent, connection: apsw.Connection) -> bool:
    _, number = _kept(connection, entry.source)
    taken = "SELECT id FROM events WHERE source = ? AND seq = ?"
    if connection.execute(taken, (number, entry.seq)).get == entry.id.digest:
        raise ContentError(f"{entry.id} is the entry of its number, no evidence")
    count = "SELECT count(*) FROM event_evidence WHERE source = ?"
    if connection.execute(count, (entry.source.digest,)).get >= EQUIVOCATIONS_MAX:
        return False
    connection.execute(_KEEP, _row(entry.source.digest, entry))
    return connection.changes() == 1


def _trim(source: SourceId, through: int, connection: apsw.Connection) -> int:
    """Erases the oldest entries up to `through`, a bounded number of them; how many went."""
    kept, number = _kept(connection, source)
    last = min(through, kept.head, kept.first + TRIM_ENTRIES - 1)
    if last < kept.first:
        return 0
    before = connection.execute(
        "SELECT id FROM events WHERE source = ? AND seq = ?", (number, last)
    ).get
    if before is None:
        raise corrupt(source, last, "it is missing: run `huginn fsck`")
    connection.execute("DELETE FROM events WHERE source = ? AND seq <= ?", (number, last))
    gone = connection.changes()
    change = "UPDATE event_sources SET first = ?, before = ? WHERE number = ?"
    connection.execute(change, (last + 1, before, number))
    return gone


def _skip(source: SourceId, through: int, id: EventId, connection: apsw.Connection) -> None:
    kept, number = _kept(connection, source)
    if through <= kept.head:
        raise skip_conflict(source, through, kept.head)
    if number is None:
        connection.execute(_OPEN, (source.digest,))
        number = connection.last_insert_rowid()
    connection.execute("DELETE FROM events WHERE source = ?", (number,))
    change = "UPDATE event_sources SET first = ?, head = ?, before = ?, id = ? WHERE number = ?"
    connection.execute(change, (through + 1, through, id.digest, id.digest, number))


def _drop(source: SourceId, connection: apsw.Connection) -> int:
    _, number = _kept(connection, source)
    connection.execute("DELETE FROM events WHERE source = ?", (number,))
    gone = connection.changes()
    connection.execute("DELETE FROM event_sources WHERE number = ?", (number,))
    connection.execute("DELETE FROM event_evidence WHERE source = ?", (source.digest,))
    return gone


def _cut(source: SourceId, finding: Finding, connection: apsw.Connection) -> None:
    _, number = _kept(connection, source)
    connection.execute("DELETE FROM events WHERE source = ? AND seq > ?", (number, finding.good))
    digest = None if finding.id is None else finding.id.digest
    connection.execute(_HEAD, (finding.good, digest, number))


def _check_dense(
    source: SourceId, kept: KeptLog, after: int, numbers: Sequence[int], limit: int | None
) -> None:
    """Raises CorruptObject where a number is missing of what was read above `after`, or, of a page
    that would be full with `limit`, behind it."""
    start = max(after + 1, kept.first)
    missing = next((seq for seq, found in enumerate(numbers, start) if found != seq), None)
    if missing is None and limit is not None:
        end = start + len(numbers)
        missing = end if len(numbers) < min(limit, kept.head - start + 1) else None
    if missing is not None:
        raise corrupt(source, missing, "it is missing: run `huginn fsck`")


class SqliteEventLogs:
    """`EventLogs` in `database`, which it closes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        batch, beside = tuple(entries), tuple(changes)
        for entry in batch:
            check_entry(entry)
        for change in beside:
            check_change(change)
        return self.database.submit(partial(_append, batch, beside))

    def range(self, source: SourceId) -> LogRange:
        kept, _ = self.database.read(lambda connection: _kept(connection, source))
        return LogRange(kept.first, kept.head, kept.id)

    def ranges(self) -> Mapping[SourceId, LogRange]:
        query = "SELECT source, first, head, id FROM event_sources WHERE head > 0"
        rows = self.database.read(lambda connection: list(connection.execute(query)))
        return {SourceId(row[0]): LogRange(row[1], row[2], _id(row[3])) for row in rows}

    def read(
        self, source: SourceId, after: int, limit: int, *, bytes_max: int | None = None
    ) -> list[StoredEvent]:
        check_page(after, limit)
        asked = partial(_page, source, min(after, _MOST), min(limit, _MOST), bytes_max)
        kept, page = self.database.read(asked)
        whole = bytes_max is None or not page
        _check_dense(source, kept, after, [entry.seq for entry in page], limit if whole else None)
        for entry in page:
            check_entry(entry)
        return page

    def sizes(self, source: SourceId, after: int, limit: int) -> list[EntrySize]:
        check_page(after, limit)
        asked = partial(_sizes, source, min(after, _MOST), min(limit, _MOST))
        kept, found = self.database.read(asked)
        _check_dense(source, kept, after, [entry.seq for entry in found], limit)
        return found

    def keep_evidence(self, entry: StoredEvent) -> bool:
        check_entry(entry)
        return self.database.write(partial(_keep, entry))

    def evidence(self, source: SourceId) -> list[StoredEvent]:
        found = self.database.read(
            lambda connection: [
                _event(source, row) for row in connection.execute(_EVIDENCE, (source.digest,))
            ]
        )
        for entry in found:
            check_entry(entry)
        return found

    def trim(self, source: SourceId, through: int) -> int:
        total = 0
        while gone := self.database.write(partial(_trim, source, through)):
            total += gone
        return total

    def skip(self, source: SourceId, through: int, id: EventId) -> None:
        kept = self.range(source)
        if through > kept.head:
            # Most of it in bounded steps, as in `drop`.
            self.trim(source, kept.head)
        self.database.write(partial(_skip, source, through, id))

    def drop(self, source: SourceId) -> int:
        # Most of it in bounded steps, the end and the record of the source in one.
        total = self.trim(source, 2**62)
        return total + self.database.write(partial(_drop, source))

    def check(self, *, newest: int | None = None) -> list[SourceId]:
        torn: list[SourceId] = []
        for source in self.sources():
            finding = self.judge(source, newest)
            if finding.fault is None:
                continue
            if not finding.torn:
                raise corrupt(source, finding.good + 1, finding.fault)
            self.cut(source, finding)
            torn.append(source)
        return torn

    def sources(self) -> list[SourceId]:
        """Every source with a log, or evidence, in this file."""
        query = "SELECT source FROM event_sources UNION SELECT source FROM event_evidence"
        rows = self.database.read(lambda connection: list(connection.execute(query)))
        return [SourceId(row[0]) for row in rows]

    def judge(self, source: SourceId, newest: int | None = None) -> Finding:
        """What the log of `source` is found to be, changing nothing; its evidence is read too
        (CorruptObject)."""
        for entry in self.evidence(source):
            fault = fault_of(entry)
            if fault is not None:
                raise corrupt(source, entry.seq, f"kept as evidence: {fault}")
        kept, _ = self.database.read(lambda connection: _kept(connection, source))
        if newest is not None and kept.head - kept.first >= newest:
            recent = kept._replace(first=kept.head - newest + 1)
            recent = recent._replace(before=self._id_of(source, recent.first - 1))
            finding = judge(recent, self._walk(source, recent))
            # Damage that begins before what was looked at is looked at whole.
            if finding.good >= recent.first:
                return finding
        return judge(kept, self._walk(source, kept))

    def cut(self, source: SourceId, finding: Finding) -> None:
        """Truncates the torn tail that `finding` is of."""
        self.database.write(partial(_cut, source, finding))

    def _id_of(self, source: SourceId, seq: int) -> EventId | None:
        _, page = self.database.read(partial(_page, source, seq - 1, 1, None))
        return page[0].id if page else None

    def _walk(self, source: SourceId, kept: KeptLog) -> Iterator[StoredEvent]:
        after = kept.first - 1
        while True:
            asked = partial(_page, source, after, _WALK_ENTRIES, _WALK_BYTES)
            _, page = self.database.read(asked)
            if not page:
                return
            yield from page
            after = page[-1].seq

    def close(self) -> None:
        self.database.close()
