from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from protocol.errors import StoreFault
from store.schema import MIGRATIONS
from store.sqlite import READERS_MAX, Database, require_library


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "data" / "room.db") as found:
        yield found


def put(database: Database, key: bytes) -> None:
    database.write(
        lambda connection: connection.execute(
            "INSERT INTO keyed SELECT 't', ?, x'', count(*) FROM keyed", (key,)
        ).fetchall()
    )


def count(database: Database) -> int:
    return int(
        database.read(lambda connection: connection.execute("SELECT count(*) FROM keyed").get)
    )


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.7.17"])
def test_a_library_that_can_lose_pages_is_refused(version: str) -> None:
    with pytest.raises(StoreFault, match=r"3\.51\.3 or later"):
        require_library(version)


def test_this_library_is_new_enough() -> None:
    require_library("3.51.3")
    require_library(apsw.sqlite_lib_version())


def test_the_settings_that_durability_needs(database: Database) -> None:
    names = ["journal_mode", "synchronous", "foreign_keys", "secure_delete", "mmap_size"]
    found = database.write(lambda connection: [connection.pragma(name) for name in names])
    assert found == ["wal", 2, 1, 1, 0]
    reader = database.read(lambda connection: connection.pragma("query_only"))
    assert reader == 1


def test_files_are_private(database: Database) -> None:
    put(database, b"k")
    folder = database.path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"room.db", "room.db-wal", "room.db.lock"} <= set(modes)


def test_a_read_sees_what_was_acknowledged(database: Database) -> None:
    for number in range(5):
        put(database, bytes((number,)))
        assert count(database) == number + 1


def test_a_read_is_one_snapshot(database: Database) -> None:
    def twice(connection: apsw.Connection) -> tuple[int, int]:
        query = "SELECT count(*) FROM keyed"
        before = connection.execute(query).get
        threading.Thread(target=put, args=(database, b"k")).start()
        while database.writer.commits < 1:
            pass
        return before, connection.execute(query).get

    assert database.read(twice) == (0, 0)
    assert count(database) == 1


def test_readers_are_bounded_and_take_turns(database: Database) -> None:
    busy = 0
    most = 0
    lock = threading.Lock()

    def look(_: apsw.Connection) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        threading.Event().wait(0.01)
        with lock:
            busy -= 1

    with ThreadPoolExecutor(3 * READERS_MAX) as pool:
        list(pool.map(lambda _: database.read(look), range(6 * READERS_MAX)))
    assert most == READERS_MAX


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(StoreFault, match="ReadOnly"):
        database.read(lambda connection: connection.execute("DELETE FROM keyed").fetchall())
    assert count(database) == 0


def test_a_read_that_takes_too_long_is_ended(database: Database) -> None:
    forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    with pytest.raises(StoreFault, match=r"longer than 0\.02 s"):
        database.read(lambda connection: connection.execute(forever).get, limit_ns=20_000_000)
    assert count(database) == 0


def test_a_file_has_one_owner(database: Database) -> None:
    with pytest.raises(StoreFault, match="open elsewhere"):
        Database(database.path)
    database.close()
    Database(database.path).close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_store_is_refused_after_fork(database: Database) -> None:
    child = os.fork()
    if child == 0:
        try:
            database.read(lambda connection: 1)
        except StoreFault as error:
            os._exit(7 if "after fork" in error.message else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_it_opens_again_with_all_that_it_held(database: Database) -> None:
    put(database, b"k")
    database.close()
    assert not database.path.with_name("room.db-wal").exists()
    with Database(database.path) as again:
        assert count(again) == 1
        assert again.integrity() == []


def test_a_newer_schema_is_refused_and_untouched(database: Database) -> None:
    database.write(lambda connection: connection.pragma("user_version", len(MIGRATIONS) + 1))
    database.close()
    before = database.path.read_bytes()
    with pytest.raises(StoreFault, match="newer Huginn") as refused:
        Database(database.path)
    assert f"schema {len(MIGRATIONS) + 1}" in refused.value.message
    assert database.path.read_bytes() == before


def test_migrations_run_once_each_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    steps = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y"]
    Database(path, migrations=steps[:1]).close()
    Database(path, migrations=steps).close()
    with Database(path, migrations=steps) as database:
        assert database.read(lambda connection: connection.pragma("user_version")) == 2
        database.write(
            lambda connection: connection.execute("INSERT INTO a (x, y) VALUES (1, 2)").get
        )


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with pytest.raises(StoreFault):
        Database(path, migrations=["CREATE TABLE a (x); CREATE TABLE a (x)"])
    with Database(path, migrations=["CREATE TABLE a (x)"]) as database:
        assert database.read(lambda connection: connection.pragma("user_version")) == 1


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreFault, match="another program's"):
        Database(path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(StoreFault, match="NotADB"):
        Database(path)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFault, match="cannot be opened"):
        Database(tmp_path / "file" / "room.db")


def test_integrity_finds_a_dangling_reference(database: Database) -> None:
    database.write(
        lambda connection: connection.execute("INSERT INTO namespaces VALUES (1, 'n')").get
    )
    database.close()
    connection = apsw.Connection(str(database.path))
    connection.execute("INSERT INTO members VALUES (1, 99)")
    connection.close()
    with Database(database.path) as again:
        assert len(again.integrity()) == 1
        assert "objects" in again.integrity()[0]


def test_a_reader_that_still_waits_is_told_that_the_store_closed(database: Database) -> None:
    began, go = threading.Event(), threading.Event()
    with ThreadPoolExecutor(READERS_MAX + 1) as pool:
        busy = [
            pool.submit(database.read, lambda _: (began.set(), go.wait(60)))
            for _ in range(READERS_MAX)
        ]
        assert began.wait(60)
        closing = threading.Thread(target=database.close)
        closing.start()
        go.set()
        closing.join(10)
        for future in busy:
            assert future.exception(10) is None or isinstance(future.exception(), StoreFault)
        with pytest.raises(StoreFault, match="closed"):
            pool.submit(database.read, lambda _: 1).result(10)
