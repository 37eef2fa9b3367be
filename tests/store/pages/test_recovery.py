from __future__ import annotations

from pathlib import Path

import pytest

from store.pages.catalog import Entry, key_of
from store.pages.files import PageFiles
from store.pages.recovery import recover
from store.pages.tier import header_of
from tests.page_samples import chain, files_below, key_for, no_sync, overwrite, talk

PAGES = talk("ann", *"abcd")
HEADERS = [header_of(*each) for each in PAGES]


@pytest.fixture
def files(tmp_path: Path) -> PageFiles:
    found = PageFiles(tmp_path / "pages", fsync=no_sync)
    for header, (_, rows) in zip(HEADERS, PAGES, strict=True):
        found.write(header, rows, key_for("ann"))
    return found


def path(files: PageFiles, number: int) -> Path:
    return files.path(key_of(HEADERS[number]))


def test_files_without_rows_are_asked(files: PageFiles) -> None:
    found = recover(files, {})
    assert {key_of(entry.header) for entry in found.entries} == {key_of(h) for h in HEADERS}
    assert found.adopted == found.entries
    for entry in found.entries:
        assert entry.file_bytes == files.path(key_of(entry.header)).stat().st_size
        assert entry.used_ns == files.path(key_of(entry.header)).stat().st_mtime_ns
    assert (found.stale, found.reclaimed, found.refused) == ([], 0, {})


def test_rows_are_believed_only_for_files_of_their_length(files: PageFiles) -> None:
    size = path(files, 0).stat().st_size
    rows = {
        key_of(HEADERS[0]): Entry(HEADERS[0], size, 77),
        key_of(HEADERS[1]): Entry(HEADERS[1], 5, 78),
        (bytes(32), bytes(32)): Entry(HEADERS[2], 5, 79),
    }
    found = recover(files, rows)
    assert rows[key_of(HEADERS[0])] in found.entries
    assert len(found.entries) == 4
    assert len(found.adopted) == 3
    assert found.stale == [(bytes(32), bytes(32))]
    assert found.lost == {(bytes(32), bytes(32)): "missing"}
    assert found.refused == {}


@pytest.mark.req("KV-6")
def test_what_is_no_page_is_gone(files: PageFiles) -> None:
    folder = path(files, 0).parent
    (folder / f"{chain('x')}.unfinished").write_bytes(b"half")
    (folder / "stray").write_bytes(b"12")
    overwrite(path(files, 1), path(files, 0).read_bytes())
    overwrite(path(files, 2), path(files, 2).read_bytes()[:-1])
    overwrite(path(files, 3), b"")
    found = recover(files, {})
    assert [entry.header for entry in found.entries] == HEADERS[:1]
    assert found.reclaimed == 2
    assert found.refused == {"name": 1, "size": 1, "header": 1}
    reasons = ("name", "size", "header")
    assert found.lost == dict(zip(map(key_of, HEADERS[1:]), reasons, strict=True))
    assert files_below(files.root) == [path(files, 0)]
