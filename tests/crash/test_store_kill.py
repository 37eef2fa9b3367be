"""kill -9 on the write path of the object store: what was acknowledged is there afterwards (I-ACK).

Each trial proves that the kill happened, and a child that acknowledges too early has to be caught
by the same check.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from protocol.errors import HuginnError
from store.fsck import FsckReport, check_database, check_objects
from tests.crash import totals
from tests.crash.store_child import object_of
from tests.killed_children import ROUNDS, killed
from tests.killed_children import start as start_child
from tests.stores import sqlite_store

start = partial(start_child, "tests.crash.store_child")


def lost(folder: Path, acknowledged: list[int]) -> list[int]:
    """The acknowledged objects that cannot be read; asserts that all else is sound."""
    store = sqlite_store(folder)
    report = FsckReport()
    check_database(store.database, report)
    check_objects(store, report, repair=True)
    assert report.ok, report.problems
    # Whatever is visible at all is whole.
    members = store.list_members("n")
    assert len(store.get_many(("n",), members)) == len(members)
    missing = []
    for number in acknowledged:
        id, body = object_of(number)
        try:
            assert store.get(("n",), id) == body
        except HuginnError:
            missing.append(number)
    store.close()
    return missing


@pytest.mark.parametrize(
    ("when", "count", "least"),
    [("commit", 1, 0), ("commit", 9, 7), ("committed", 9, 8), ("file", 2, 7), ("named", 6, 3)],
)
def test_a_kill_on_the_write_path_loses_nothing(
    tmp_path: Path, when: str, count: int, least: int
) -> None:
    acknowledged = killed(start(tmp_path, when, count))
    assert len(acknowledged) >= least
    assert lost(tmp_path, acknowledged) == []
    totals.killed("a store")


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_kill_from_outside_loses_nothing(tmp_path: Path, round: int) -> None:
    child = start(tmp_path, "never", 0)
    assert child.stdout is not None
    seen = b"".join(child.stdout.readline() for _ in range(40 + 37 * round))
    child.kill()
    acknowledged = killed(child, seen)
    assert len(acknowledged) >= 40
    assert lost(tmp_path, acknowledged) == []
    totals.killed("a store")


@pytest.mark.parametrize(("when", "count"), [("commit", 9), ("file", 2), ("named", 6)])
def test_control_acknowledging_too_early_is_caught(tmp_path: Path, when: str, count: int) -> None:
    acknowledged = killed(start(tmp_path, when, count, "early"))
    assert lost(tmp_path, acknowledged) == [acknowledged[-1]]


def test_a_store_goes_on_after_a_kill(tmp_path: Path) -> None:
    first = killed(start(tmp_path, "commit", 6))
    second = killed(start(tmp_path, "named", 9))
    assert lost(tmp_path, sorted({*first, *second})) == []
