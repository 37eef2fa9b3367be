"""I/O faults at every operation of the append path: reopened, the log is dense and chained, and no
acknowledged event is missing (EVT-2). The same sweep over a writer with synchronous=NORMAL, and
over one that acknowledges too early, has to find losses: that it does is the proof that it sees.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from protocol.errors import HuginnError, StoreFault
from store.events import StoredEvent
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_tables import SqliteTables
from store.tables import Change, Put
from tests.crash.totals import FAULTS, TOTALS
from tests.event_logs import SOURCE, stored_chain
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk, WeakDatabase
from tests.stores import FAST

APPENDS = 10
TRIMMED = 2
CHAIN = stored_chain(APPENDS)
# `make crash` sets this to 1: every operation. The default looks at every third.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "3"))
_names = itertools.count()


class EagerLogs(SqliteEventLogs):
    """Acknowledges whatever became of it."""

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        with contextlib.suppress(StoreFault):
            super().append_soon(entries, changes).exception(10)
        done: Future[None] = Future()
        done.set_result(None)
        return done


Kind = tuple[type[Database], type[SqliteEventLogs]]
HONEST: Kind = (Database, SqliteEventLogs)
NOT_DURABLE: Kind = (WeakDatabase, SqliteEventLogs)
EAGER: Kind = (Database, EagerLogs)


def append_all(path: Path, vfs: str, kind: Kind) -> int:
    """Appends event by event, with a mark beside each; the last number that was acknowledged."""
    acknowledged = 0
    try:
        logs = kind[1](kind[0](path, vfs=vfs))
    except StoreFault:
        return acknowledged
    for entry in CHAIN:
        mark = Put("marks", SOURCE.digest, b"%d" % entry.seq)
        # After a refusal it is unknown whether the event is there: it is asked for once more.
        for _ in range(2):
            with contextlib.suppress(HuginnError):
                logs.append_soon([entry], [mark]).result(10)
                acknowledged = entry.seq
                break
        if entry.seq == APPENDS // 2:
            with contextlib.suppress(StoreFault):
                logs.trim(SOURCE, TRIMMED)
                logs.database.checkpoint()
    logs.close()
    return acknowledged


def run(folder: Path, kind: Kind, *, fail_at: int, mode: str) -> tuple[LossyDisk, int]:
    disk = LossyDisk(f"lossy-events-{next(_names)}", fail_at=fail_at, mode=mode)
    folder.mkdir()
    try:
        acknowledged = append_all(folder / "t.db", disk.name, kind)
    finally:
        disk.unregister()
    disk.power_off()
    return disk, acknowledged


def wrong(folder: Path, acknowledged: int) -> list[str]:
    """What is wrong after reopening on a sound disk: events missing, or damage."""
    try:
        with Database(folder / "t.db") as database:
            logs = SqliteEventLogs(database)
            problems = database.integrity()
            problems += [f"torn: {source}" for source in logs.check()]
            kept = logs.range(SOURCE)
            mark = SqliteTables(database).keyed("marks").get(SOURCE.digest)
            entries = logs.read(SOURCE, 0, APPENDS)
    except HuginnError as error:
        return [error.message]
    if kept.head < acknowledged:
        problems.append(f"acknowledged up to {acknowledged}, there up to {kept.head}")
    if kept.first not in (1, TRIMMED + 1) or entries != CHAIN[kept.first - 1 : kept.head]:
        problems.append(f"not the events {kept.first} to {kept.head}")
    if mark != (b"%d" % kept.head if kept.head else None):
        problems.append(f"the mark is {mark!r}, the head {kept.head}")
    return problems


@pytest.fixture
def folder() -> Iterator[Path]:
    # The lossy disk keeps its own account of what is durable, so the real one need not.
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


def sweep(folder: Path, kind: Kind, mode: str, stride: int) -> dict[int, list[str]]:
    """For every `stride`-th operation: what was wrong when it failed."""
    clean, acknowledged = run(folder / "clean", kind, fail_at=0, mode=mode)
    assert acknowledged == APPENDS
    assert wrong(folder / "clean", acknowledged) == []
    found = {}
    for point in range(1, clean.operations + 1, stride):
        point_folder = folder / f"{mode}-{point}"
        disk, acknowledged = run(point_folder, kind, fail_at=point, mode=mode)
        # The fault did happen.
        assert disk.operations >= point
        found[point] = wrong(point_folder, acknowledged)
    assert len(found) > 10
    return found


@pytest.mark.req("EVT-2", "EVT-5")
@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
def test_no_fault_loses_an_acknowledged_event(folder: Path, mode: str) -> None:
    found = sweep(folder, HONEST, mode, STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    TOTALS[FAULTS] += len(found)


@pytest.mark.parametrize(
    ("kind", "mode"), [(NOT_DURABLE, CUT), (EAGER, CUT), (EAGER, TORN), (EAGER, EIO)]
)
def test_control_a_careless_writer_is_caught(folder: Path, kind: Kind, mode: str) -> None:
    found = sweep(folder, kind, mode, 2 * STRIDE)
    assert [problems for problems in found.values() if problems]
