"""The index of pages on disk: one SQLite row a page, so that opening does not read every file.

It is derived from derived data. Nothing waits for it, nothing fails with it: rows are written
behind, a row whose digest does not cover it is as good as absent, and a file that SQLite refuses
is deleted and written anew from the headers of the page files.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import apsw

from protocol.errors import HuginnError, RequestError, StoreFault
from protocol.ids import ChainId, ProfileId, framed_digest
from store.commit import Work
from store.pages.catalog import Entry, Key
from store.pages.header import PageHeader, check_header
from store.sqlite import Database

_SCHEMA: Final = """
CREATE TABLE pages (
  domain BLOB NOT NULL,
  chain BLOB NOT NULL,
  parent BLOB NOT NULL,
  profile BLOB NOT NULL,
  start INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  full_bytes INTEGER NOT NULL,
  full_digest BLOB NOT NULL,
  sliding_bytes INTEGER NOT NULL,
  sliding_digest BLOB NOT NULL,
  file_bytes INTEGER NOT NULL,
  digest BLOB NOT NULL,
  used_ns INTEGER NOT NULL,
  PRIMARY KEY (domain, chain)
) STRICT, WITHOUT ROWID;
"""
MIGRATIONS: Final[tuple[str, ...]] = (_SCHEMA,)
_SAVE: Final = "INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_USE: Final = "UPDATE pages SET used_ns = ? WHERE domain = ? AND chain = ?"
_REMOVE: Final = "DELETE FROM pages WHERE domain = ? AND chain = ?"
_COLUMN_BYTES: Final = 8
# What SQLite promises of a sound file only: in a damaged one a column may be NULL.
_TYPES: Final = (*[bytes] * 4, *[int] * 3, bytes, int, bytes, int, bytes, int)

Row = tuple[bytes, bytes, bytes, bytes, int, int, int, bytes, int, bytes, int]


def row_of(entry: Entry) -> Row:
    """The columns that the row's digest covers."""
    header = entry.header
    return (
        header.domain,
        header.chain.digest,
        b"" if header.parent is None else header.parent.digest,
        header.profile.digest,
        header.start,
        header.tokens,
        header.full_bytes,
        header.full_digest,
        header.sliding_bytes,
        header.sliding_digest,
        entry.file_bytes,
    )


def row_digest(row: Row) -> bytes:
    """The digest over a row; each column has a length that does not depend on its value, but for
    the parent, which is there exactly if the page does not start at 0."""
    parts = [
        column if isinstance(column, bytes) else column.to_bytes(_COLUMN_BYTES, "big", signed=True)
        for column in row
    ]
    return framed_digest("huginn.page-row/1", b"".join(parts))


def entry_of(row: Row, used_ns: int) -> Entry:
    """The entry that a row holds; raises ContentError for a page that cannot be."""
    header = PageHeader(
        v=1,
        domain=row[0],
        chain=ChainId(row[1]),
        parent=ChainId(row[2]) if row[2] else None,
        profile=ProfileId(row[3]),
        start=row[4],
        tokens=row[5],
        full_bytes=row[6],
        full_digest=row[7],
        sliding_bytes=row[8],
        sliding_digest=row[9],
    )
    return Entry(check_header(header), row[10], used_ns, used_ns)


class PageIndex:
    """The file at `path`, opened, or made anew if it is not a sound index. Its owner alone may
    call, from any thread. `errors` counts what the disk refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors = 0
        self._counting = threading.Lock()
        self._database: Database | None = None
        self._open()

    def load(self) -> dict[Key, Entry]:
        """The sound rows. Without a readable file: none, and the file is made anew."""
        if self._database is None:
            return {}
        try:
            rows = self._database.read(
                lambda connection: list(connection.execute("SELECT * FROM pages"))
            )
        except StoreFault:
            self._failed()
            with contextlib.suppress(OSError):
                self.rewrite(())
            return {}
        found: dict[Key, Entry] = {}
        for row in rows:
            columns = row[:11]
            # A row that cannot be is skipped: its file is asked.
            with contextlib.suppress(RequestError):
                if tuple(map(type, row)) == _TYPES and row_digest(columns) == row[11]:
                    found[row[0], row[1]] = entry_of(columns, max(0, row[12]))
        return found

    def save(self, entries: Iterable[Entry]) -> None:
        """Write these down, some time."""
        rows = []
        for entry in entries:
            row = row_of(entry)
            rows.append((*row, row_digest(row), entry.used_ns))
        self._submit(lambda connection: _run(connection, _SAVE, rows))

    def use(self, entries: Iterable[Entry]) -> None:
        """Write down when these were used, some time."""
        rows = [
            (entry.used_ns, entry.header.domain, entry.header.chain.digest) for entry in entries
        ]
        self._submit(lambda connection: _run(connection, _USE, rows))

    def remove(self, keys: Iterable[Key]) -> None:
        """Delete these rows, some time."""
        rows = list(keys)
        self._submit(lambda connection: _run(connection, _REMOVE, rows))

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """A new file with these rows alone: no byte of any other is left in it, which deleting
        rows could not promise. Raises OSError if the old file cannot be removed."""
        self.close()
        self._discard()
        self._open()
        self.save(entries)

    def flush(self) -> None:
        """Wait until all that was asked for is written down, or given up."""
        if self._database is not None:
            with contextlib.suppress(HuginnError):
                self._database.write(lambda _: None)

    def close(self) -> None:
        """Write what was asked for, and give up the file. Twice is once."""
        if self._database is not None:
            database, self._database = self._database, None
            database.close()

    def _open(self) -> None:
        for attempt in (1, 2):
            try:
                self._database = Database(self.path, migrations=MIGRATIONS)
                return
            except StoreFault:
                self._failed()
                if attempt == 1:
                    with contextlib.suppress(OSError):
                        self._discard()

    def _discard(self) -> None:
        for ending in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)

    def _submit(self, work: Work[None]) -> None:
        if self._database is None:
            return
        try:
            self._database.submit(work).add_done_callback(self._done)
        except StoreFault:
            self._failed()

    def _done(self, future: Future[None]) -> None:
        if future.exception() is not None:
            self._failed()

    def _failed(self) -> None:
        with self._counting:
            self.errors += 1


def _run(connection: apsw.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    connection.executemany(statement, rows)
