"""One SQLite file: opened, checked, written by one thread, read by a few, closed.

WAL with synchronous=FULL, because NORMAL loses acknowledged commits in a power cut. One writer
connection, owned by one process (a lock file says so). Readers are few, read-only and bounded in
time, because a reader that stays keeps the write-ahead log from ever shrinking. No mmap. Deleted
bytes are overwritten (secure_delete), because erasure has to mean it.

SQLite below 3.51.3 is refused: a checkpoint there can race a commit that resets the log, and lose
pages. Only apsw's own library is used, never the standard library's beside it on the same file.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import apsw

from protocol.errors import StoreFault
from store.commit import CommitWriter, Work, abandon, as_fault, is_fatal
from store.files import make_directory, sync_directory
from store.schema import APPLICATION_ID, MIGRATIONS

T = TypeVar("T")

SQLITE_VERSION_MIN: Final = (3, 51, 3)
# How long one connection waits for another's lock. Only a checkpoint and a reader ever meet.
BUSY_TIMEOUT_MS: Final = 5000
# The write-ahead log is cut back to this many bytes when it starts over.
JOURNAL_BYTES_MAX: Final = 16 * 1024 * 1024
# Connections that read at once; one more waits for its turn.
READERS_MAX: Final = 4
# One read at most: a longer one would hold the log.
READ_NS_MAX: Final = 30 * 10**9
_STEPS_BETWEEN_CHECKS: Final = 100_000


def require_library(version: str) -> None:
    """Raises StoreFault if the SQLite library `version` (such as "3.54.1") is too old."""
    if tuple(int(part) for part in version.split(".")) < SQLITE_VERSION_MIN:
        wanted = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreFault(
            f"SQLite {version} can lose committed pages (its WAL-reset race): {wanted} or later is "
            "needed; install the apsw version that pyproject.toml pins"
        )


def connect(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection to `path` that may write, set up as above; raises apsw.Error."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Asked before it is set: the mode is a property of the file, and is set once in its life.
        if connection.pragma("journal_mode") != "wal":
            mode = connection.pragma("journal_mode", "wal")
            if mode != "wal":
                raise StoreFault(f"{path} cannot use a write-ahead log (journal mode {mode})")
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", True)
        connection.pragma("secure_delete", True)
        connection.pragma("journal_size_limit", JOURNAL_BYTES_MAX)
        connection.pragma("mmap_size", 0)
    except BaseException:
        abandon(connection)
        raise
    return connection


def migrate(connection: apsw.Connection, path: Path, migrations: Sequence[str]) -> None:
    """Brings the file to the last of `migrations`, one transaction each.

    Raises StoreFault for a file that a newer version wrote or that is not ours.
    """
    version = connection.pragma("user_version")
    owner = connection.pragma("application_id")
    filled = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if owner != APPLICATION_ID and (filled or version):
        raise StoreFault(f"{path} is another program's database: choose another data directory")
    if version > len(migrations):
        raise StoreFault(
            f"{path} has schema {version}, written by a newer Huginn; this one knows up to "
            f"{len(migrations)}: upgrade Huginn, or restore the backup from before"
        )
    for number in range(version, len(migrations)):
        with connection:
            connection.execute(migrations[number])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", number + 1)


class _Reader:
    """A read-only connection that gives up at its deadline."""

    def __init__(self, path: Path, vfs: str | None) -> None:
        flags = apsw.SQLITE_OPEN_READONLY
        self.connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
        self.connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        self.connection.pragma("query_only", True)
        self.connection.set_progress_handler(self._is_late, _STEPS_BETWEEN_CHECKS)
        self._deadline_ns = 0

    def _is_late(self) -> bool:
        return time.monotonic_ns() > self._deadline_ns

    def run(self, work: Work[T], limit_ns: int) -> T:
        self._deadline_ns = time.monotonic_ns() + limit_ns
        self.connection.execute("BEGIN")
        try:
            return work(self.connection)
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")


class Database:
    """The SQLite file at `path`, created with its directory if missing (0600 in 0700).

    `vfs` names a registered SQLite VFS. Raises StoreFault if another owner has it open, if the
    library is too old, or if the file is newer than `migrations` or not ours.
    """

    def __init__(
        self, path: Path, *, vfs: str | None = None, migrations: Sequence[str] = MIGRATIONS
    ) -> None:
        require_library(apsw.sqlite_lib_version())
        self.path = path
        self._vfs = vfs
        self._lock = self._claim()
        try:
            self.writer = CommitWriter(lambda: self._open(migrations))
        except BaseException as error:
            os.close(self._lock)
            raise as_fault(error) from error
        self._idle: deque[_Reader] = deque()
        self._permits = threading.BoundedSemaphore(READERS_MAX)
        self._closing = threading.Lock()
        self._closed = False

    def _claim(self) -> int:
        try:
            make_directory(self.path.parent)
            lock = self.path.with_name(self.path.name + ".lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # A file of its own: closing any descriptor of the database would drop its locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Created here so that SQLite's own files take over these permissions.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                sync_directory(self.path.parent)
            except BlockingIOError:
                os.close(descriptor)
                raise StoreFault(f"{self.path} is open elsewhere: it has one owner") from None
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise StoreFault(f"{self.path} cannot be opened: {error}") from error
        return descriptor

    def _open(self, migrations: Sequence[str]) -> apsw.Connection:
        connection = connect(self.path, vfs=self._vfs)
        try:
            migrate(connection, self.path, migrations)
        except BaseException:
            abandon(connection)
            raise
        return connection

    def submit(self, work: Work[T]) -> Future[T]:
        """A future of `work`'s result, resolved once it is durable: see `CommitWriter.submit`."""
        return self.writer.submit(work)

    def write(self, work: Work[T]) -> T:
        """`work`'s result, once it is durable: see `CommitWriter.write`."""
        return self.writer.write(work)

    def read(self, work: Work[T], *, limit_ns: int = READ_NS_MAX) -> T:
        """What `work` finds in one snapshot, which holds everything acknowledged before.

        It must return values, not cursors, and within `limit_ns` nanoseconds: the snapshot ends
        with the call. Raises StoreFault if it takes longer, if the disk refuses, or after a fatal
        error of the writer, when what memory shows may not be what the disk holds.
        """
        with self._permits:
            self.writer.check()
            try:
                return self._read(work, limit_ns)
            except apsw.InterruptError as error:
                raise StoreFault(
                    f"a read took longer than {limit_ns / 1e9:g} s: read less at a time"
                ) from error
            except apsw.Error as error:
                raise as_fault(error) from error

    def _read(self, work: Work[T], limit_ns: int) -> T:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = _Reader(self.path, self._vfs)
        try:
            value = reader.run(work, limit_ns)
        except BaseException as error:
            if is_fatal(error):
                reader.connection.close()
            else:
                self._idle.append(reader)
            raise
        self._idle.append(reader)
        return value

    def checkpoint(self) -> None:
        """Copies the write-ahead log into the file and cuts it, so that erased bytes leave it.

        Raises StoreFault if a reader was in the way for as long as it may be, or the disk is full.
        """
        if not self.writer.checkpoint().result():
            raise StoreFault("a reader held the write-ahead log, or the disk is full: try again")

    def scrub(self) -> None:
        """Writes the file anew and cuts the log: of what was erased nothing is left in either.

        Overwriting deleted bytes is not enough: filling a page anew can leave copies of its cells
        in its gaps (`dead_space.py` finds them). Takes as long as writing all that is kept. Raises
        StoreFault if the disk is full or a reader was in the way for as long as it may be.
        """
        fault = self.writer.compact().result()
        if fault is not None:
            raise fault

    def integrity(self) -> list[str]:
        """What SQLite's own checks find wrong with the file: nothing, when all is well."""

        def look(connection: apsw.Connection) -> list[str]:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            dangling = list(connection.execute("PRAGMA foreign_key_check"))
            return [line for line in found if line != "ok"] + [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
                for row in dangling
            ]

        return self.read(look, limit_ns=3600 * 10**9)

    def close(self) -> None:
        """Commits what was submitted, waits for the readers, cuts the log. Twice is once."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            # A reader that does not end is left behind rather than waited for.
            patience_s = BUSY_TIMEOUT_MS / 1000
            held = [self._permits.acquire(timeout=patience_s) for _ in range(READERS_MAX)]
            while self._idle:
                # A disk that fails now must not keep the rest from being given up.
                abandon(self._idle.pop().connection)
            self.writer.close()
            os.close(self._lock)
            # Whoever still waits to read gets its turn, and the answer that the store is closed.
            self._permits.release(sum(held))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
