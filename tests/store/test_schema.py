from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from store.schema import APPLICATION_ID, MIGRATIONS
from store.sqlite import Database

# A migration that has been released never changes: files out there have run it.
RELEASED = ("3e252a5c4b6456d8",)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    Database(tmp_path / "room.db").close()
    found = apsw.Connection(str(tmp_path / "room.db"))
    found.pragma("foreign_keys", True)
    yield found
    found.close()


def test_released_migrations_are_as_they_were() -> None:
    found = tuple(hashlib.sha256(step.encode()).hexdigest()[:16] for step in MIGRATIONS)
    assert found[: len(RELEASED)] == RELEASED


def test_a_file_says_whose_it_is(connection: apsw.Connection) -> None:
    assert connection.pragma("application_id") == APPLICATION_ID == int.from_bytes(b"Hugn", "big")
    assert connection.pragma("user_version") == len(MIGRATIONS)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO objects VALUES (1, 'text', x'00', 0, x'')",
        "INSERT INTO objects VALUES (1, 'text', zeroblob(32), -1, x'')",
        "INSERT INTO objects VALUES (1, 'text', zeroblob(32), 'many', x'')",
        "INSERT INTO members VALUES (1, 1)",
        "INSERT INTO heads VALUES (1, 'main', 1)",
        "INSERT INTO logs VALUES ('l', 0, zeroblob(32), zeroblob(32), x'')",
    ],
)
def test_rows_that_cannot_be(connection: apsw.Connection, statement: str) -> None:
    with pytest.raises(apsw.ConstraintError):
        connection.execute(statement)
