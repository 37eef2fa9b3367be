"""I/O faults at every operation of a write path: reopened, the file is sound and no acknowledged
row is missing (I-ACK). The same sweep over a writer with synchronous=NORMAL, and over one that
acknowledges too early, has to find losses: that it does is the proof that it can see them.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import apsw
import pytest

from protocol.errors import StoreFault
from store import commit
from store.commit import CommitWriter
from store.schema import MIGRATIONS
from store.sqlite import Database, connect, migrate
from store.sqlite_tables import make_change
from store.tables import Put
from tests.crash.totals import FAULTS, TOTALS
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk
from tests.stores import FAST

ROWS = 12
# `make crash` sets this to 1: every operation. The default looks at every third.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "3"))
_names = itertools.count()


class Writer(Protocol):
    def submit(self, work: commit.Work[int]) -> Future[int]: ...
    def close(self) -> None: ...


Opener = Callable[[Path, str], Writer]


def honest(path: Path, vfs: str) -> Writer:
    return Database(path, vfs=vfs)


def not_durable(path: Path, vfs: str) -> Writer:
    """A writer like ours, with the one setting that loses commits."""

    def weak() -> apsw.Connection:
        connection = connect(path, vfs=vfs)
        try:
            migrate(connection, path, MIGRATIONS)
            connection.pragma("synchronous", "NORMAL")
        except apsw.Error:
            commit.abandon(connection)
            raise
        return connection

    try:
        return CommitWriter(weak)
    except apsw.Error as error:
        raise StoreFault("could not open") from error


class Eager:
    """Acknowledges whatever became of it."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._database = Database(path, vfs=vfs)

    def submit(self, work: commit.Work[int]) -> Future[int]:
        self._database.submit(work).exception(10)
        done: Future[int] = Future()
        done.set_result(1)
        return done

    def close(self) -> None:
        self._database.close()


def put_rows(path: Path, vfs: str, opener: Opener) -> list[int]:
    """Puts rows one by one and goes on after a refusal; the acknowledged ones."""
    acknowledged: list[int] = []
    try:
        writer = opener(path, vfs)
    except StoreFault:
        return acknowledged
    for number in range(ROWS):
        change = Put("t", b"%d" % number, b"value " * 100)
        try:
            writer.submit(lambda connection, change=change: make_change(connection, change)).result(
                10
            )
            acknowledged.append(number)
            if number == ROWS // 2 and isinstance(writer, Database):
                writer.checkpoint()
        except StoreFault:
            continue
    writer.close()
    return acknowledged


def run(folder: Path, opener: Opener, *, fail_at: int, mode: str) -> tuple[LossyDisk, list[int]]:
    disk = LossyDisk(f"lossy-{next(_names)}", fail_at=fail_at, mode=mode)
    folder.mkdir()
    try:
        acknowledged = put_rows(folder / "t.db", disk.name, opener)
    finally:
        disk.unregister()
    disk.power_off()
    return disk, acknowledged


def lost(folder: Path, acknowledged: list[int]) -> list[object]:
    """What is wrong after reopening on a sound disk: acknowledged rows missing, or damage."""
    try:
        with Database(folder / "t.db") as database:
            problems: list[object] = list(database.integrity())
            keys = database.read(
                lambda connection: {row[0] for row in connection.execute("SELECT key FROM keyed")}
            )
    except StoreFault as error:
        return [error.message]
    return problems + [number for number in acknowledged if b"%d" % number not in keys]


@pytest.fixture
def folder() -> Iterator[Path]:
    # The lossy disk keeps its own account of what is durable, so the real one need not.
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


def sweep(folder: Path, opener: Opener, mode: str, stride: int) -> dict[int, list[object]]:
    """For every `stride`-th operation: what was lost when it failed."""
    clean, acknowledged = run(folder / "clean", opener, fail_at=0, mode=mode)
    assert acknowledged == list(range(ROWS))
    assert lost(folder / "clean", acknowledged) == []
    found = {}
    for point in range(1, clean.operations + 1, stride):
        point_folder = folder / f"{mode}-{point}"
        disk, acknowledged = run(point_folder, opener, fail_at=point, mode=mode)
        # The fault did happen, and it cost something.
        assert disk.operations >= point
        found[point] = lost(point_folder, acknowledged)
    assert len(found) > 10
    return found


@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
def test_no_fault_loses_an_acknowledged_row(folder: Path, mode: str) -> None:
    found = sweep(folder, honest, mode, STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    TOTALS[FAULTS] += len(found)


@pytest.mark.parametrize(
    ("opener", "mode"), [(not_durable, CUT), (Eager, CUT), (Eager, TORN), (Eager, EIO)]
)
def test_control_a_careless_writer_is_caught(folder: Path, opener: Opener, mode: str) -> None:
    found = sweep(folder, opener, mode, 2 * STRIDE)
    assert [problems for problems in found.values() if problems]


def test_the_sweep_covers_writes_syncs_and_the_checkpoint(folder: Path) -> None:
    disk, _ = run(folder / "clean", honest, fail_at=0, mode=CUT)
    # Creation, one commit for each row (a write or more, and a sync), and two checkpoints.
    assert disk.operations > 3 * ROWS
    assert (folder / "clean" / "t.db").stat().st_size > 4096
