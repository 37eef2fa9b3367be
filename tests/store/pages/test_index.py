from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from protocol.errors import ContentError
from store.pages.catalog import Entry, key_of
from store.pages.index import PageIndex, entry_of, row_digest, row_of
from store.pages.tier import header_of
from tests.page_samples import talk

ENTRIES = [
    Entry(header_of(*each), 500 + number, 1_000 + number, 1_000 + number)
    for number, each in enumerate(talk("ann", *"abc") + talk("bob", *"ab"))
]
BY_KEY = {key_of(entry.header): entry for entry in ENTRIES}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PageIndex]:
    found = PageIndex(tmp_path / "index.db")
    yield found
    found.close()


def reopened(index: PageIndex) -> PageIndex:
    index.close()
    return PageIndex(index.path)


def test_a_row_comes_back_and_its_digest_covers_every_column() -> None:
    row = row_of(ENTRIES[1])
    assert entry_of(row, ENTRIES[1].used_ns) == ENTRIES[1]
    digests = {row_digest(row)}
    for at, column in enumerate(row):
        other = bytes(32) if isinstance(column, bytes) else column + 1
        digests.add(row_digest((*row[:at], other, *row[at + 1 :])))  # type: ignore[arg-type]
    assert len(digests) == len(row) + 1
    with pytest.raises(ContentError):
        entry_of((*row[:5], 0, *row[6:]), 0)  # type: ignore[arg-type]


def test_what_was_saved_is_loaded(index: PageIndex) -> None:
    index.save(ENTRIES)
    index.flush()
    assert index.load() == BY_KEY
    used = Entry(ENTRIES[0].header, ENTRIES[0].file_bytes, 9_000, 9_000)
    index.use([used])
    index.remove([key_of(ENTRIES[1].header)])
    again = reopened(index)
    expected = {**BY_KEY, key_of(used.header): used}
    del expected[key_of(ENTRIES[1].header)]
    assert again.load() == expected
    assert again.errors == 0
    again.close()


def test_rewriting_leaves_no_byte_of_the_rows_that_went(index: PageIndex) -> None:
    index.save(ENTRIES)
    index.flush()
    index.rewrite(ENTRIES[3:])
    again = reopened(index)
    assert again.load() == {key_of(entry.header): entry for entry in ENTRIES[3:]}
    again.close()
    bytes_left = b"".join(path.read_bytes() for path in index.path.parent.iterdir())
    assert ENTRIES[3].header.chain.digest in bytes_left
    assert ENTRIES[3].header.domain in bytes_left
    assert ENTRIES[0].header.domain not in bytes_left
    # Only this one's chain is not also a page of the other domain.
    assert ENTRIES[2].header.chain.digest not in bytes_left
    assert ENTRIES[2].header.full_digest not in bytes_left


@pytest.mark.parametrize("body", [b"", b"not a database" * 100, b"SQLite format 3\0" + bytes(4096)])
def test_a_file_that_is_no_index_is_made_anew(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "index.db").write_bytes(body)
    index = PageIndex(tmp_path / "index.db")
    assert index.load() == {}
    index.save(ENTRIES)
    again = reopened(index)
    assert again.load() == BY_KEY
    again.close()


def test_another_programs_database_is_made_anew(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "index.db"))
    connection.execute("CREATE TABLE pages (domain)")
    connection.close()
    index = PageIndex(tmp_path / "index.db")
    assert index.errors == 1
    index.save(ENTRIES)
    index.flush()
    assert index.load() == BY_KEY
    index.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE pages SET start = start + 24",
        "UPDATE pages SET parent = zeroblob(32)",
        "UPDATE pages SET chain = zeroblob(32) WHERE file_bytes = 500",
        "UPDATE pages SET digest = x''",
        "UPDATE pages SET domain = x'00' WHERE file_bytes = 500",
        "UPDATE pages SET tokens = -1",
        "UPDATE pages SET file_bytes = 9",
    ],
)
def test_a_changed_row_is_as_good_as_absent(index: PageIndex, statement: str) -> None:
    index.save(ENTRIES)
    index.close()
    connection = apsw.Connection(str(index.path))
    connection.execute(statement)
    changed = connection.changes()
    connection.close()
    again = PageIndex(index.path)
    assert changed in (1, 5)
    found = again.load()
    assert len(found) == 5 - changed
    assert all(BY_KEY[key] == entry for key, entry in found.items())
    again.close()


def test_an_index_that_cannot_be_opened_costs_nothing_but_itself(tmp_path: Path) -> None:
    (tmp_path / "index.db").mkdir()
    index = PageIndex(tmp_path / "index.db")
    assert index.errors == 2
    index.save(ENTRIES)
    index.use(ENTRIES)
    index.remove(BY_KEY)
    index.flush()
    assert index.load() == {}
    index.close()
    index.close()


def test_a_write_that_fails_is_counted(index: PageIndex) -> None:
    index.save(ENTRIES)
    index.flush()
    other = apsw.Connection(str(index.path))
    other.execute("DROP TABLE pages")
    other.close()
    index.save(ENTRIES)
    index.flush()
    assert index.errors == 1
    assert index.load() == {}
