"""Group commit: one thread owns the one write connection, and many submissions share one sync.

A sync costs a millisecond and a row costs microseconds, so whatever arrives while one commit is
under way joins the next. Each submission runs in a savepoint of its own: one that fails is undone
alone. Its future resolves only after COMMIT has returned with synchronous=FULL (I-ACK).

After a failed write or sync the kernel may have dropped the dirty pages and marked them clean, so
trying again on the same descriptor can report success for bytes that are nowhere. Such an error is
fatal: the writer stops, its connection is closed without a checkpoint, and every later call raises
StoreFault. A full disk is not: SQLite undoes the batch, its submissions raise DiskFull, and the
next may succeed. A log that cannot be copied back for want of room is copied back later.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import apsw

from protocol.errors import DiskFull, HuginnError, StoreFault
from store.files import lacks_room

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

# Submissions of one transaction at most: bounds how long the first of them waits for the last.
BATCH_MAX: Final = 256
# After this many seconds without work the write-ahead log is copied back and cut to nothing.
IDLE_S: Final = 2.0

_FATAL: Final = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError)
# What may go wrong with BEGIN or COMMIT and still leave a connection that can be trusted.
_BATCH_ONLY: Final = (apsw.FullError, apsw.BusyError, apsw.ConstraintError, apsw.InterruptError)


class _Submission(Generic[T]):
    __slots__ = ("future", "outside", "work")

    def __init__(self, work: Work[T], *, outside: bool = False) -> None:
        self.work = work
        # Runs after the commit of the batch that it came with, in no transaction.
        self.outside = outside
        self.future: Future[T] = Future()


class _BatchLostError(Exception):
    """SQLite undid the whole transaction under one of its submissions."""


def is_fatal(error: BaseException) -> bool:
    """Whether nothing that was written through this connection can be trusted after `error`."""
    if isinstance(error, apsw.FullError):
        return False
    if isinstance(error, OSError):
        return not lacks_room(error)
    return isinstance(error, _FATAL)


def as_fault(error: BaseException) -> BaseException:
    """What a caller is told: SQLite's and the system's errors become StoreFault, or DiskFull."""
    if isinstance(error, HuginnError):
        return error
    fault: StoreFault
    if isinstance(error, apsw.FullError) or lacks_room(error):
        fault = DiskFull("the disk is full, nothing was stored: free some space and try again")
    elif isinstance(error, apsw.Error | OSError):
        fault = StoreFault(f"the database refused: {type(error).__name__}: {error}")
    else:
        return error
    fault.__cause__ = error
    return fault


def abandon(connection: apsw.Connection) -> None:
    """Closes `connection` without the checkpoint of a close: after a fault nothing is copied."""
    with contextlib.suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()


class CommitWriter:
    """Owns the connection that `connect` returns, from construction to `close`.

    `submissions` and `commits` count what was taken and how many transactions it took.
    """

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        *,
        batch_max: int = BATCH_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._connection = connect()
        self._batch_max = batch_max
        self._idle_s = idle_s
        self._queue: queue.SimpleQueue[_Submission[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._written_since_checkpoint = False
        self._process = os.getpid()
        self.fault: StoreFault | None = None
        self.submissions = 0
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises StoreFault unless this writer takes submissions from this process."""
        if self.fault is not None:
            raise StoreFault(f"the store has stopped: {self.fault.message}; restart the process")
        if self._closed:
            raise StoreFault("the store is closed")
        if os.getpid() != self._process:
            raise StoreFault(f"the store was opened by process {self._process}: open it after fork")

    def submit(self, work: Work[T]) -> Future[T]:
        """A future of what `work` returns, which resolves once that is durable.

        `work` gets the connection, inside a transaction that it must not end, on the writer's
        thread. What it raises undoes its own changes and is the future's exception. After a
        StoreFault that says so, it is unknown whether the change is there. Raises StoreFault after
        `close` or a fatal error.
        """
        return self._enqueue(_Submission(work))

    def checkpoint(self) -> Future[bool]:
        """Copies the log back and cuts it, so that erased bytes leave it.

        The future is False, and the log still there, if a reader was in the way, or if there was no
        room for what it holds.
        """
        return self._enqueue(_Submission(lambda _: self._checkpoint(), outside=True))

    def compact(self) -> Future[BaseException | None]:
        """Writes the file anew, so that nothing but what it says is in it, and cuts the log.

        The future is what kept it from that, if something did, and the file is then as it was.
        """
        return self._enqueue(_Submission(lambda _: self._compact(), outside=True))

    def _enqueue(self, submission: _Submission[T]) -> Future[T]:
        with self._gate:
            self.check()
            self._queue.put(submission)
        return submission.future

    def write(self, work: Work[T]) -> T:
        """Like `submit`, and waits. Never from inside a submission, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise StoreFault("a submission cannot wait for another: do the work in one")
        return self.submit(work).result()

    def close(self) -> None:
        """Commits what was submitted, cuts the write-ahead log, closes. Twice is once."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last and self.fault is None:
            batch, last = self._take()
            if batch:
                self._serve(batch)
        if self.fault is None:
            self._serve([_Submission(lambda _: self._checkpoint(), outside=True)])
        if self.fault is None:
            self._connection.close()
        else:
            abandon(self._connection)

    def _take(self) -> tuple[list[_Submission[Any]], bool]:
        """The next batch, and whether it is the last."""
        batch: list[_Submission[Any]] = []
        try:
            item = self._queue.get(timeout=self._idle_s)
            while item is not None:
                batch.append(item)
                if len(batch) == self._batch_max:
                    return batch, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch or [_Submission(lambda _: self._checkpoint(), outside=True)], False
        return batch, True

    def _serve(self, batch: list[_Submission[Any]]) -> None:
        live = [one for one in batch if one.future.set_running_or_notify_cancel()]
        try:
            inside = [one for one in live if not one.outside]
            if inside:
                self._commit(inside)
            for one in live:
                if one.outside:
                    one.future.set_result(one.work(self._connection))
        except BaseException as error:
            self._halt(error, live)

    def _commit(self, live: list[_Submission[Any]]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(one.work) for one in live]
            connection.execute("COMMIT")
        except (_BatchLostError, apsw.IOError, *_BATCH_ONLY) as error:
            told = self._survived(error)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for one in live:
                one.future.set_exception(told)
            return
        self._written_since_checkpoint = True
        self.commits += 1
        self.submissions += len(live)
        for one, (value, failure) in zip(live, outcomes, strict=True):
            if failure is None:
                one.future.set_result(value)
            else:
                one.future.set_exception(failure)

    def _survived(self, error: Exception) -> BaseException:
        """What callers are told of a batch that `error` undid; raises it if it is fatal."""
        if isinstance(error, apsw.IOError):
            if not self._exceeds_quota(error):
                raise error
            error = apsw.FullError(str(error))
        return as_fault(error if error.__cause__ is None else error.__cause__)

    def _exceeds_quota(self, error: apsw.Error) -> bool:
        """SQLite calls a quota that is full an I/O error. Such a write was refused as a whole, as
        one on a full disk is: no page of an earlier one is in doubt."""
        refused = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
        return refused and self._connection.system_errno == errno.EDQUOT

    def _attempt(self, work: Work[Any]) -> tuple[Any, BaseException | None]:
        connection = self._connection
        connection.execute("SAVEPOINT submission")
        try:
            value, failure = work(connection), None
        except Exception as error:
            if is_fatal(error):
                raise
            if not connection.in_transaction:
                raise _BatchLostError from error
            connection.execute("ROLLBACK TO submission")
            value, failure = None, as_fault(error)
        if not connection.in_transaction:
            raise StoreFault("a submission ended the transaction that it shares with others")
        connection.execute("RELEASE submission")
        return value, failure

    def _halt(self, error: BaseException, batch: list[_Submission[Any]]) -> None:
        told = as_fault(error)
        fault = told if isinstance(told, StoreFault) else StoreFault(f"the writer failed: {told!r}")
        with self._gate:
            self.fault = fault
        rest = list(batch)
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if item is not None:
                    rest.append(item)
        for one in rest:
            if not one.future.done():
                one.future.set_exception(fault)

    def _checkpoint(self) -> bool:
        if self._written_since_checkpoint:
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError, apsw.FullError):
                # What was committed lies in the log, and is read there: nothing is lost by waiting.
                return False
            except apsw.IOError as error:
                if not self._exceeds_quota(error):
                    raise
                return False
            self._written_since_checkpoint = False
        return True

    def _compact(self) -> BaseException | None:
        try:
            # Its scratch file holds what is kept, and is unnamed: nothing erased passes through it.
            self._connection.execute("VACUUM")
        except (apsw.FullError, apsw.BusyError, apsw.LockedError) as error:
            return as_fault(error)
        self._written_since_checkpoint = True
        if not self._checkpoint():
            return StoreFault("a reader held the write-ahead log, or the disk is full: try again")
        return None


async def settled(future: Future[T]) -> T:
    """What `future` resolves to, for a coroutine; cancelling it does not undo a commit."""
    if future.done():
        return future.result()
    return await asyncio.wrap_future(future)
