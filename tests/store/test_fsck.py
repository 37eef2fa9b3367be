from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from protocol.ids import BlockId
from store.fsck import FsckReport, check_database, check_objects
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.stores import large, sqlite_store, text

ONE, BIG = text("one"), large("big ")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteObjectStore]:
    found = sqlite_store(tmp_path)
    found.put_many("n", [ONE, BIG, *(text(f"object {number}") for number in range(100))])
    yield found
    found.close()


def check(store: SqliteObjectStore, *, repair: bool = False) -> FsckReport:
    report = FsckReport()
    check_database(store.database, report)
    check_objects(store, report, repair=repair)
    return report


def found(report: FsckReport) -> list[tuple[str, str]]:
    return [(problem.kind, problem.action) for problem in report.problems]


def test_a_sound_store_has_no_problems(store: SqliteObjectStore) -> None:
    tables = SqliteTables(store.database)
    tables.log("audit").append(b"a")
    tables.log("audit").append(b"b")
    report = check(store)
    assert report.problems == []
    assert report.ok
    assert (report.objects, report.files, report.logs, report.log_entries) == (102, 1, 1, 2)
    assert report.bytes == store.stats().bytes


@pytest.mark.req("ID-5")
def test_damaged_rows_and_files_are_reported_and_left(store: SqliteObjectStore) -> None:
    store.database.write(
        lambda connection: connection.execute(
            "UPDATE objects SET body = x'00' WHERE digest = ?", (ONE[0].digest,)
        ).fetchall()
    )
    path = store.blobs.path(BIG[0].digest)
    path.chmod(0o600)
    path.write_bytes(BIG[1][:-1])
    for repair in (False, True):
        report = check(store, repair=repair)
        assert found(report) == [("corrupt", "reported")] * 2
        assert not report.ok
    assert path.exists()
    path.unlink()
    assert "missing" in check(store).problems[-1].what


def test_what_a_crash_left_is_reported_and_reclaimed(store: SqliteObjectStore) -> None:
    orphan = large("orphan ")
    store.blobs.put(*orphan)
    path = store.blobs.path(orphan[0].digest)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(b"half")
    assert sorted(found(check(store))) == [("orphan", "reported"), ("unfinished", "reported")]
    assert path.exists()
    assert unfinished.exists()
    repaired = check(store, repair=True)
    assert sorted(found(repaired)) == [("orphan", "removed"), ("unfinished", "removed")]
    assert repaired.ok
    assert check(store).problems == []
    assert store.get(("n",), BIG[0]) == BIG[1]


def test_on_doubt_a_file_is_set_aside_and_never_removed(
    store: SqliteObjectStore, tmp_path: Path
) -> None:
    path = store.blobs.path(BlockId.of(b"something").digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else")
    stray = store.blobs.root / "notes.txt"
    stray.write_bytes(b"mine")
    assert sorted(found(check(store))) == [("stray", "reported"), ("suspect", "reported")]
    report = check(store, repair=True)
    assert sorted(found(report)) == [("stray", "reported"), ("suspect", "set aside")]
    assert not report.ok
    assert (store.blobs.root / "quarantine" / path.name).read_bytes() == b"something else"
    assert stray.read_bytes() == b"mine"
    assert found(check(store)) == [("stray", "reported")]


def test_a_file_in_the_wrong_place_is_a_stray(store: SqliteObjectStore) -> None:
    path = store.blobs.path(BIG[0].digest)
    (store.blobs.root / path.name).write_bytes(BIG[1])
    assert found(check(store, repair=True)) == [("stray", "reported")]


def test_a_file_that_cannot_be_read_does_not_stop_the_check(store: SqliteObjectStore) -> None:
    path = store.blobs.path(BlockId.of(b"something").digest)
    path.mkdir(parents=True)
    (path / "x.unfinished").mkdir()
    loop = path.with_name(BlockId.of(b"something").digest.hex()[:4] + "f" * 60)
    loop.symlink_to(loop)
    assert found(check(store, repair=True)) == [("unreadable", "reported")]
    assert store.get(("n",), ONE[0]) == b"one"


def test_a_broken_chain_is_reported(store: SqliteObjectStore) -> None:
    SqliteTables(store.database).log("audit").append(b"a")
    SqliteTables(store.database).log("other").append(b"a")
    store.database.write(
        lambda connection: connection.execute(
            "UPDATE logs SET body = x'' WHERE name = 'audit'"
        ).fetchall()
    )
    report = check(store)
    assert found(report) == [("log", "reported")]
    assert report.logs == 2


def test_a_dangling_membership_is_reported(store: SqliteObjectStore, tmp_path: Path) -> None:
    store.close()
    connection = apsw.Connection(str(tmp_path / "objects.db"))
    connection.execute("DELETE FROM objects WHERE digest = ?", (ONE[0].digest,))
    connection.close()
    again = sqlite_store(tmp_path)
    assert found(check(again)) == [("integrity", "reported")]
    again.close()


def test_a_damaged_page_is_reported_or_refused(store: SqliteObjectStore, tmp_path: Path) -> None:
    store.close()
    path = tmp_path / "objects.db"
    pages = bytearray(path.read_bytes())
    at = pages.index(b"object 50")
    pages[at - 60 : at + 60] = bytes(120)
    path.write_bytes(pages)
    with Database(path) as database:
        report = FsckReport()
        check_database(database, report)
        check_objects(SqliteObjectStore(database, store.blobs), report)
    assert not report.ok
