"""Dead space: what is deleted is found where it is left, and after a scrub nothing is."""

from __future__ import annotations

from pathlib import Path
from random import Random

import apsw
import pytest

from protocol.errors import CorruptObject, StoreFault
from store.dead_space import remains
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from store.tables import Append, Delete, Put

SIZES = (0, 3, 40, 300, 900, 3_000, 9_000, 70_000)


def filled(path: Path, seed: int, *, rounds: int = 12) -> SqliteTables:
    """Tables with rows of every size, about half of which were deleted again."""
    random = Random(seed)
    tables = SqliteTables(Database(path))
    keys: list[tuple[str, bytes]] = []
    for _ in range(rounds):
        fresh = [(f"t{random.randrange(3)}", random.randbytes(32)) for _ in range(40)]
        keys += fresh
        tables.apply(
            [Put(name, key, random.randbytes(random.choice(SIZES))) for name, key in fresh]
        )
        random.shuffle(keys)
        gone, keys = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        tables.apply([Delete(name, key) for name, key in gone])
        tables.apply([Append("log", random.randbytes(random.choice(SIZES)))])
    return tables


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("seed", range(6))
def test_a_scrubbed_file_has_nothing_but_what_it_says(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "x.sqlite"
    tables = filled(path, seed)
    rows = {name: tables.keyed(name).items() for name in ("t0", "t1", "t2")}
    tables.scrub()
    assert list(remains(path)) == []
    assert {name: tables.keyed(name).items() for name in rows} == rows
    tables.log("log").verify()
    # It is written to as before, and scrubbed again.
    tables.apply([Delete(name, key) for name, items in rows.items() for key, _ in items])
    tables.scrub()
    assert list(remains(path)) == []
    tables.close()
    assert list(remains(path)) == []


def test_overwriting_what_is_deleted_is_not_enough(tmp_path: Path) -> None:
    """Why a scrub writes the file anew: bytes of deleted rows are in the gaps of pages that were
    filled anew. The control of the test above."""
    path = tmp_path / "x.sqlite"
    random = Random(1)
    tables = SqliteTables(Database(path))
    for _ in range(40):
        sizes = [random.choice((10, 100, 900, 5_000)) for _ in range(100)]
        tables.apply(
            [Put(f"t{random.randrange(3)}", random.randbytes(32), b"S" * size) for size in sizes]
        )
    for name in ("t0", "t1", "t2"):
        keys = [key for key, _ in tables.keyed(name).items()]
        random.shuffle(keys)
        tables.apply([Delete(name, key) for key in keys[: len(keys) // 2]])
    tables.database.checkpoint()
    found = list(remains(path))
    assert sum(each.bytes for each in found) > 500
    data = path.read_bytes()
    assert any(b"SSSSSSSS" in data[each.offset : each.offset + 64] for each in found)
    tables.close()


def test_a_log_that_is_not_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    tables = SqliteTables(Database(path))
    tables.keyed("t").put(b"key", b"a secret")
    found = list(remains(path))
    assert [(each.file.name, each.page) for each in found] == [("x.sqlite-wal", 0)]
    tables.scrub()
    assert list(remains(path)) == []
    tables.close()


def test_every_byte_that_is_planted_is_found_at_its_place(tmp_path: Path) -> None:
    """Rows of a file that does not overwrite, and single bytes in places that nothing owns."""
    path = tmp_path / "plain.sqlite"
    plain = apsw.Connection(str(path))
    plain.pragma("secure_delete", False)
    plain.execute("CREATE TABLE t (key TEXT PRIMARY KEY, value BLOB)")
    with plain:
        plain.executemany(
            "INSERT INTO t VALUES (?, ?)", [(str(n), b"nobody" * (n % 900)) for n in range(300)]
        )
    plain.execute("DELETE FROM t WHERE CAST(key AS INTEGER) % 3 > 0")
    left = list(remains(path))
    assert sum(each.bytes for each in left) > 100_000
    data = path.read_bytes()
    assert all(data[each.offset] for each in left)
    plain.pragma("secure_delete", True)
    plain.execute("VACUUM")
    plain.close()
    assert list(remains(path)) == []
    clean = path.read_bytes()
    random = Random(7)
    places = [at for at, byte in enumerate(clean) if not byte]
    planted = 0
    for at in random.sample(places, 200):
        path.write_bytes(clean[:at] + b"\x80" + clean[at + 1 :])
        try:
            found = list(remains(path))
        except (CorruptObject, IndexError):
            continue  # a byte that has an owner: what it says is not so any more
        planted += [each.offset for each in found] == [at]
    assert planted > 20


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(CorruptObject, match="is no SQLite database"):
        list(remains(path))
    path.write_bytes(b"")
    assert list(remains(path)) == []


def test_a_reader_in_the_way_is_a_fault_and_not_an_end(tmp_path: Path) -> None:
    """It is said that it could not be done, and done the next time."""
    path = tmp_path / "x.sqlite"
    tables = filled(path, 1)
    tables.database.write(lambda connection: connection.set_busy_timeout(50))
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM keyed").fetchall()
    with pytest.raises(StoreFault, match="a reader held the write-ahead log"):
        tables.scrub()
    reader.execute("ROLLBACK")
    reader.close()
    tables.scrub()
    assert list(remains(path)) == []
    tables.close()
