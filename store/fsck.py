"""Checking what is kept: every hash, every file, every reference, every chain.

Looking changes nothing. With `repair` it removes what is certainly nobody's: unfinished files, and
files that hash to their name and that no row names. What is only suspect is moved aside into
`quarantine`, never removed, and damaged rows are reported and left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import apsw

from protocol.errors import CorruptObject, HuginnError
from protocol.ids import PREFIX_TO_KIND, ObjectId, SourceId
from store.blobs import BlobFiles
from store.files import UNFINISHED, sync_directory
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_objects import SqliteObjectStore, id_of
from store.sqlite_tables import SqliteTables

# Object rows that one snapshot reads.
_PAGE_ROWS: Final = 64
_NAMED: Final = "SELECT 1 FROM objects WHERE digest = ? AND body IS NULL"
_DIGEST_NAME: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Problem:
    """One finding: its `kind` (a short name), where, what is wrong, and what was done about it."""

    kind: str
    where: str
    what: str
    action: str = "reported"


@dataclass
class FsckReport:
    """What was looked at (counts, and `bytes` of bodies hashed) and what was found."""

    objects: int = 0
    bytes: int = 0
    files: int = 0
    logs: int = 0
    log_entries: int = 0
    event_logs: int = 0
    events: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is left that needs a person: repaired leftovers do not count."""
        return all(problem.action == "removed" for problem in self.problems)

    def add(self, kind: str, where: object, what: str, action: str = "reported") -> None:
        """Notes a problem."""
        self.problems.append(Problem(kind, str(where), what, action))


def check_database(database: Database, report: FsckReport, *, repair: bool = False) -> None:
    """SQLite's own integrity and reference checks, then every log's and event log's chain.

    `repair` truncates event logs whose newest entries are not whole.
    """
    tables = SqliteTables(database)
    names: list[str] = []
    with _noting(report, "integrity", database.path):
        for line in database.integrity():
            report.add("integrity", database.path, line)
        names = tables.logs()
    for name in names:
        report.logs += 1
        with _noting(report, "log", name):
            report.log_entries += tables.log(name).verify().seq
    events = SqliteEventLogs(database)
    sources: list[SourceId] = []
    with _noting(report, "integrity", database.path):
        sources = events.sources()
    for source in sources:
        report.event_logs += 1
        with _noting(report, "event log", source):
            _check_events(events, source, report, repair)


def _check_events(
    events: SqliteEventLogs, source: SourceId, report: FsckReport, repair: bool
) -> None:
    finding = events.judge(source)
    report.events += max(0, finding.good - events.range(source).first + 1)
    if finding.fault is None:
        return
    where = f"{source}, entry {finding.good + 1}"
    if not finding.torn:
        report.add("event log", where, finding.fault)
        return
    if repair:
        events.cut(source, finding)
    action = "removed" if repair else "reported"
    report.add("torn event log", where, f"the newest entry: {finding.fault}", action)


def check_objects(store: SqliteObjectStore, report: FsckReport, *, repair: bool = False) -> None:
    """Every object's hash and every file's owner, while the store is in use or not."""
    with _noting(report, "integrity", store.database.path):
        for number, kind, digest, size, body in _rows(store.database):
            report.objects += 1
            with _noting(report, "corrupt", f"object row {number}"):
                _check_object(store.blobs, kind, digest, size, body)
                report.bytes += size
        # On the writer's thread: no put is between its file and its row while this looks.
        store.database.write(partial(_check_files, store.blobs, report, repair))


@contextmanager
def _noting(report: FsckReport, kind: str, where: object) -> Iterator[None]:
    """Turns what is raised into a finding."""
    try:
        yield
    except (HuginnError, OSError) as error:
        report.add(kind, where, str(error))


def _check_object(
    blobs: BlobFiles, kind: str, digest: bytes, size: int, body: bytes | None
) -> None:
    id = id_of(kind, digest)
    try:
        found = blobs.get(id) if body is None else id.check(body)
    except FileNotFoundError:
        raise CorruptObject(f"the file of {id} is missing") from None
    if len(found) != size:
        raise CorruptObject(f"the row of {id} says {size} bytes, it has {len(found)}")


Row = tuple[int, str, bytes, int, bytes | None]


def _rows(database: Database) -> Iterator[Row]:
    last = 0
    while page := database.read(partial(_page, last)):
        yield from page
        last = page[-1][0]


def _page(
    last: int, connection: apsw.Connection
) -> list[tuple[int, str, bytes, int, bytes | None]]:
    query = "SELECT number, kind, digest, bytes, body FROM objects WHERE number > ? LIMIT ?"
    rows = connection.execute(query, (last, _PAGE_ROWS))
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def _check_files(
    blobs: BlobFiles, report: FsckReport, repair: bool, connection: apsw.Connection
) -> None:
    quarantine = blobs.root / "quarantine"
    for path in list(blobs.files()):
        if quarantine in path.parents:
            continue
        report.files += 1
        # Inside, because an OSError that left here would stop the writer.
        with _noting(report, "unreadable", path):
            _check_file(path, connection, blobs, report, quarantine if repair else None)


def _check_file(
    path: Path,
    connection: apsw.Connection,
    blobs: BlobFiles,
    report: FsckReport,
    quarantine: Path | None,
) -> None:
    """Looks at one file, and repairs if `quarantine` says where suspects go."""
    if path.name.endswith(UNFINISHED):
        action = "reported" if quarantine is None else _remove(path)
        report.add("unfinished", path, "left by a put that never ended", action)
        return
    if not _DIGEST_NAME.fullmatch(path.name) or blobs.path(bytes.fromhex(path.name)) != path:
        report.add("stray", path, "not a name that is written here")
        return
    digest = bytes.fromhex(path.name)
    if connection.execute(_NAMED, (digest,)).fetchone() is not None:
        return
    if _hashes_to_name(path, digest):
        action = "reported" if quarantine is None else _remove(path)
        report.add("orphan", path, "no row names it", action)
    else:
        action = "reported" if quarantine is None else _set_aside(path, quarantine)
        report.add("suspect", path, "no row names it and it is not what its name says", action)


def _hashes_to_name(path: Path, digest: bytes) -> bool:
    body = path.read_bytes()
    kinds: list[type[ObjectId]] = list(PREFIX_TO_KIND.values())
    return any(kind.of(body).digest == digest for kind in kinds)


def _remove(path: Path) -> str:
    path.unlink()
    sync_directory(path.parent)
    return "removed"


def _set_aside(path: Path, quarantine: Path) -> str:
    quarantine.mkdir(mode=0o700, exist_ok=True)
    os.replace(path, quarantine / path.name)
    sync_directory(quarantine)
    sync_directory(path.parent)
    return "set aside"
