from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from protocol.errors import Conflict, DiskFull, StoreFault
from store.commit import CommitWriter, as_fault, is_fatal, settled
from store.sqlite import connect
from tests.full_disk import BROKEN, FULL, QUOTA, switched_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with apsw.Connection(str(tmp_path / "rows.db")) as connection:
        connection.execute("CREATE TABLE rows (value INTEGER PRIMARY KEY)")
    connection.close()
    return tmp_path / "rows.db"


@pytest.fixture
def writer(path: Path) -> Iterator[CommitWriter]:
    found = CommitWriter(lambda: connect(path))
    yield found
    found.close()


def add(value: int) -> object:
    return lambda connection: connection.execute("INSERT INTO rows VALUES (?)", (value,)).fetchall()


def rows(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    found = [row[0] for row in connection.execute("SELECT value FROM rows ORDER BY value")]
    connection.close()
    return found


class Held:
    """Keeps the writer busy, so that what is submitted meanwhile shares the next commit."""

    def __init__(self, writer: CommitWriter) -> None:
        self.go = threading.Event()
        began = threading.Event()
        self.future = writer.submit(lambda _: (began.set(), self.go.wait(60)))
        assert began.wait(60)


def test_a_future_resolves_after_its_commit(writer: CommitWriter, path: Path) -> None:
    assert writer.write(lambda connection: connection.execute("SELECT 7").get) == 7
    writer.write(add(1))
    assert rows(path) == [1]


def test_what_waits_together_commits_together(writer: CommitWriter, path: Path) -> None:
    held = Held(writer)
    futures = [writer.submit(add(value)) for value in range(50)]
    assert not any(future.done() for future in futures)
    held.go.set()
    for future in futures:
        future.result(10)
    assert writer.submissions == 51
    assert writer.commits == 2
    assert rows(path) == list(range(50))


def test_many_callers_share_commits(writer: CommitWriter, path: Path) -> None:
    held = Held(writer)
    with ThreadPoolExecutor(16) as pool:
        done = [pool.submit(writer.write, add(value)) for value in range(200)]
        held.go.set()
        for future in done:
            future.result(10)
    assert rows(path) == list(range(200))
    assert writer.commits < writer.submissions == 201


def test_a_batch_is_bounded(path: Path) -> None:
    writer = CommitWriter(lambda: connect(path), batch_max=10)
    held = Held(writer)
    futures = [writer.submit(add(value)) for value in range(35)]
    held.go.set()
    for future in futures:
        future.result(10)
    assert writer.commits == 1 + 4
    writer.close()


def test_a_submission_that_fails_is_undone_alone(writer: CommitWriter, path: Path) -> None:
    def half(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO rows VALUES (100)")
        raise Conflict("no")

    def twice(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO rows VALUES (101)")
        connection.execute("INSERT INTO rows VALUES (1)")

    held = Held(writer)
    futures: list[Future[object]] = [
        writer.submit(add(1)),
        writer.submit(half),
        writer.submit(twice),
        writer.submit(lambda _: 1 // 0),
        writer.submit(add(2)),
    ]
    held.go.set()
    assert futures[0].result(10) == futures[4].result(10) == []
    assert isinstance(futures[1].exception(10), Conflict)
    assert isinstance(futures[2].exception(10), StoreFault)
    assert isinstance(futures[3].exception(10), ZeroDivisionError)
    assert rows(path) == [1, 2]
    assert writer.commits == 2


def test_submissions_take_effect_in_their_order(writer: CommitWriter) -> None:
    order: list[int] = []
    futures = [writer.submit(lambda _, n=number: order.append(n)) for number in range(20)]
    futures[-1].result(10)
    assert order == list(range(20))


def test_cancelled_before_it_ran_is_never_run(writer: CommitWriter, path: Path) -> None:
    held = Held(writer)
    first, second = writer.submit(add(1)), writer.submit(add(2))
    assert first.cancel()
    held.go.set()
    second.result(10)
    with pytest.raises(CancelledError):
        first.result(10)
    assert rows(path) == [2]


async def test_a_cancelled_coroutine_leaves_the_writer_alive(
    writer: CommitWriter, path: Path
) -> None:
    held = Held(writer)
    task = asyncio.create_task(settled(writer.submit(add(1))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.go.set()
    assert await settled(writer.submit(add(2))) == []
    assert rows(path)[-1] == 2


def test_close_finishes_what_was_submitted(path: Path) -> None:
    writer = CommitWriter(lambda: connect(path))
    held = Held(writer)
    futures = [writer.submit(add(value)) for value in range(5)]
    threading.Timer(0.05, held.go.set).start()
    writer.close()
    writer.close()
    assert all(future.done() for future in futures)
    assert rows(path) == list(range(5))
    with pytest.raises(StoreFault, match="closed"):
        writer.submit(add(9))


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "bad disk"), apsw.IOError("bad disk"), apsw.CorruptError("bad page")],
)
def test_a_bad_disk_stops_the_writer_for_good(path: Path, error: Exception) -> None:
    def fail(_: apsw.Connection) -> None:
        raise error

    writer = CommitWriter(lambda: connect(path))
    held = Held(writer)
    futures = [writer.submit(add(1)), writer.submit(fail), writer.submit(add(2))]
    held.go.set()
    held.future.result(10)
    for future in futures:
        assert isinstance(future.exception(10), StoreFault)
    with pytest.raises(StoreFault, match="has stopped"):
        writer.submit(add(3))
    with pytest.raises(StoreFault, match="has stopped"):
        writer.checkpoint()
    writer.close()
    assert rows(path) == []


def test_a_full_disk_fails_the_submission_and_not_the_writer(
    writer: CommitWriter, path: Path
) -> None:
    def fill(connection: apsw.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 3")
        connection.execute("CREATE TABLE wide (body BLOB)")
        connection.execute("INSERT INTO wide VALUES (zeroblob(1000000))")

    writer.write(add(1))
    with pytest.raises(StoreFault, match="disk is full"):
        writer.write(fill)
    writer.write(add(2))
    assert rows(path) == [1, 2]


@pytest.mark.parametrize("refusal", [FULL, QUOTA])
def test_without_room_nothing_is_stored_and_nothing_is_broken(path: Path, refusal: str) -> None:
    with switched_disk() as disk:
        writer = CommitWriter(lambda: connect(path))
        writer.write(add(1))
        disk.refusal = refusal
        for value in (2, 3):
            with pytest.raises(DiskFull, match="disk is full"):
                writer.write(add(value))
        disk.refusal = None
        writer.write(add(3))
        writer.close()
    assert rows(path) == [1, 3]


def test_control_a_write_that_fails_otherwise_stops_the_writer(path: Path) -> None:
    with switched_disk() as disk:
        writer = CommitWriter(lambda: connect(path))
        disk.refusal = BROKEN
        with pytest.raises(StoreFault) as told:
            writer.write(add(1))
        assert not isinstance(told.value, DiskFull)
        disk.refusal = None
        with pytest.raises(StoreFault, match="has stopped"):
            writer.write(add(1))
        writer.close()


@pytest.mark.parametrize("refusal", [FULL, QUOTA])
def test_a_log_that_finds_no_room_is_copied_back_later(path: Path, refusal: str) -> None:
    with switched_disk() as disk:
        writer = CommitWriter(lambda: connect(path), idle_s=600)
        writer.write(add(1))
        disk.refusal = refusal
        assert writer.checkpoint().result(60) is False
        disk.refusal = None
        writer.write(add(2))
        assert writer.checkpoint().result(60) is True
        writer.close()
    assert rows(path) == [1, 2]


def test_a_submission_that_ends_the_transaction_stops_the_writer(path: Path) -> None:
    writer = CommitWriter(lambda: connect(path))
    with pytest.raises(StoreFault, match="ended the transaction"):
        writer.write(lambda connection: connection.execute("COMMIT").fetchall())
    with pytest.raises(StoreFault, match="has stopped"):
        writer.submit(add(1))
    writer.close()


def test_a_lost_transaction_fails_all_of_its_submissions(writer: CommitWriter, path: Path) -> None:
    def lose(connection: apsw.Connection) -> None:
        connection.execute("ROLLBACK")
        raise apsw.FullError("as SQLite does when it cannot undo one statement")

    held = Held(writer)
    futures = [writer.submit(add(1)), writer.submit(lose)]
    held.go.set()
    for future in futures:
        assert isinstance(future.exception(10), StoreFault)
    writer.write(add(2))
    assert rows(path) == [2]


def test_waiting_inside_a_submission_is_refused(writer: CommitWriter) -> None:
    with pytest.raises(StoreFault, match="wait for another"):
        writer.write(lambda _: writer.write(add(1)))


def test_the_log_is_cut_when_nothing_happens(path: Path) -> None:
    log = path.with_name("rows.db-wal")
    writer = CommitWriter(lambda: connect(path), idle_s=0.02)
    writer.write(add(1))
    waited = threading.Event()
    for _ in range(200):
        if log.stat().st_size == 0:
            break
        waited.wait(0.02)
    assert log.stat().st_size == 0
    writer.write(add(2))
    assert log.stat().st_size > 0
    writer.close()
    assert not log.exists()


def test_a_reader_in_the_way_only_postpones_the_cut(path: Path) -> None:
    writer = CommitWriter(lambda: connect(path))
    writer.write(lambda connection: connection.set_busy_timeout(1))
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM rows").fetchall()
    writer.write(add(1))
    assert writer.checkpoint().result(10) is False
    reader.close()
    assert writer.checkpoint().result(10) is True
    writer.close()


def test_which_errors_are_fatal() -> None:
    fatal = [OSError(errno.EIO, ""), apsw.IOError(""), apsw.CorruptError("")]
    other = [OSError(errno.ENOSPC, ""), apsw.FullError(""), apsw.ConstraintError(""), ValueError()]
    assert [is_fatal(error) for error in fatal + other] == [True] * 3 + [False] * 4


def test_what_callers_are_told() -> None:
    for code in (errno.ENOSPC, errno.EDQUOT):
        assert isinstance(as_fault(OSError(code, "")), DiskFull)
    assert isinstance(as_fault(apsw.FullError("")), DiskFull)
    for other in (OSError(errno.EIO, ""), OSError(errno.EROFS, ""), apsw.IOError("")):
        assert not isinstance(as_fault(other), DiskFull)
    told = as_fault(apsw.BusyError("locked"))
    assert isinstance(told, StoreFault)
    assert isinstance(told.__cause__, apsw.BusyError)
    kept = Conflict("mine")
    assert as_fault(kept) is kept
