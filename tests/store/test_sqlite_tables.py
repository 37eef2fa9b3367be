from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import CorruptObject
from store.sqlite import Database
from store.sqlite_tables import SqliteTables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[SqliteTables]:
    found = SqliteTables(Database(tmp_path / "tables.db"))
    yield found
    found.close()


def test_all_is_there_after_reopening(tables: SqliteTables) -> None:
    tables.keyed("t").put(b"b", b"1")
    tables.keyed("t").put(b"a", b"2")
    head = (tables.log("audit").append(b"x"), tables.log("audit").head())
    tables.close()
    again = SqliteTables(Database(tables.database.path))
    assert again.keyed("t").items() == [(b"b", b"1"), (b"a", b"2")]
    assert head == (1, again.log("audit").verify())
    assert again.log("audit").append(b"y") == 2
    again.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE logs SET body = x'00' WHERE seq = 2",
        "UPDATE logs SET digest = zeroblob(32) WHERE seq = 3",
        "DELETE FROM logs WHERE seq = 1",
        "DELETE FROM logs WHERE seq = 2",
        "UPDATE logs SET seq = 9 WHERE seq = 3",
        "UPDATE logs SET name = 'other'",
    ],
)
def test_a_log_that_was_tampered_with_does_not_verify(tables: SqliteTables, statement: str) -> None:
    log = tables.log("audit")
    for body in (b"a", b"b", b"c"):
        log.append(body)
    trusted = log.head()
    tables.database.write(lambda connection: connection.execute(statement).fetchall())
    with pytest.raises(CorruptObject):
        log.verify(trusted)


def test_appending_from_many_threads_gives_each_a_number_of_its_own(tables: SqliteTables) -> None:
    log = tables.log("audit")
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(log.append, [b"%d" % number for number in range(80)]))
    assert sorted(numbers) == list(range(1, 81))
    assert log.verify().seq == 80
    by_number = {entry.seq: entry.body for entry in log.entries()}
    assert [by_number[seq] for seq in numbers] == [b"%d" % number for number in range(80)]
