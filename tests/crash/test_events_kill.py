"""kill -9 while events are appended: none that was acknowledged is lost, and the log is dense and
chained (EVT-2, I-ACK). A mark that is set with an event is there exactly when the event is (EVT-5).

Each trial proves that the kill happened, and a child that acknowledges too early has to be caught
by the same check.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from protocol.events import open_entry
from store.fsck import FsckReport, check_database
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_tables import SqliteTables
from tests.crash import totals
from tests.crash.events_child import WRITER_STEP, WRITERS
from tests.event_logs import SIGNERS, source_of
from tests.killed_children import ROUNDS, killed
from tests.killed_children import start as start_child

start = partial(start_child, "tests.crash.events_child")
PAGE = 500


def lost(folder: Path, acknowledged: list[int]) -> list[int]:
    """The acknowledged events that are not there; asserts that all else is sound."""
    with Database(folder / "events.db") as database:
        report = FsckReport()
        check_database(database, report)
        assert report.problems == []
        logs, tables = SqliteEventLogs(database), SqliteTables(database)
        assert logs.check() == []
        kept = {
            WRITER_STEP * writer + seq
            for writer in range(WRITERS)
            for seq in numbers(logs, tables, writer)
        }
    return [number for number in acknowledged if number not in kept]


def numbers(logs: SqliteEventLogs, tables: SqliteTables, writer: int) -> range:
    """The numbers of a writer's log; asserts that it is whole, and that the mark is its head."""
    source = source_of(SIGNERS[writer])
    previous, seq = None, 0
    while page := logs.read(source, seq, PAGE):
        for stored in page:
            id, event = open_entry(stored.body, SIGNERS[writer].public)
            assert (id, event.seq, event.prev) == (stored.id, seq + 1, previous)
            previous, seq = id, event.seq
    assert logs.range(source)[1:] == (seq, previous)
    mark = tables.keyed("marks").get(source.digest)
    assert mark == (b"%d" % seq if seq else None)
    return range(1, seq + 1)


@pytest.mark.req("EVT-2", "EVT-5")
@pytest.mark.parametrize(
    ("when", "count", "least"), [("commit", 1, 0), ("commit", 9, 7), ("committed", 9, 8)]
)
def test_a_kill_on_the_append_path_loses_nothing(
    tmp_path: Path, when: str, count: int, least: int
) -> None:
    acknowledged = killed(start(tmp_path, when, count))
    assert len(acknowledged) >= least
    assert lost(tmp_path, acknowledged) == []
    totals.killed("a log", events=len(acknowledged))


@pytest.mark.req("EVT-2", "EVT-5")
@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_kill_from_outside_loses_nothing(tmp_path: Path, round: int) -> None:
    acknowledged: list[int] = []
    # The same file is killed twice: what was kept after the first kill is gone on from.
    for _ in range(2):
        child = start(tmp_path, "never", 0)
        assert child.stdout is not None
        seen = b"".join(child.stdout.readline() for _ in range(40 + 37 * round))
        child.kill()
        acknowledged += killed(child, seen)
        assert lost(tmp_path, acknowledged) == []
        totals.killed("a log")
    assert len(acknowledged) >= 80
    assert len(set(acknowledged)) == len(acknowledged)
    totals.TOTALS[totals.EVENTS] += len(acknowledged)


@pytest.mark.parametrize("count", [2, 9])
def test_control_acknowledging_too_early_is_caught(tmp_path: Path, count: int) -> None:
    acknowledged = killed(start(tmp_path, "commit", count, "early"))
    assert lost(tmp_path, acknowledged) == [acknowledged[-1]]
