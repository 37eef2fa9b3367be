"""Files of `huginn fsck --erased`: free space and bodies that nobody names, found and mended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.cli.erased_files import (
    check_bodies,
    check_dead_space,
    check_old_pages,
    check_pages,
    check_source_keys,
)
from store.fsck import FsckReport
from store.pages.header import domain_digest
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.stores import large, sqlite_store


def said(report: FsckReport) -> list[tuple[str, str, str]]:
    return [(each.kind, each.where, each.action) for each in report.problems]


@pytest.mark.req("AUT-8")
def test_free_space_is_found_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "rooms" / "gateway.sqlite"
    tables = SqliteTables(Database(path))
    for number in range(300):
        tables.keyed("keys").put(b"key %d" % number, bytes(200))
    tables.keyed("keys").trim(0)
    for number in range(20):
        tables.keyed("keys").put(b"key %d" % number, bytes(200))
    # Bytes in a page that is free, as a build that does not overwrite would leave them.
    tables.close()
    clean = path.read_bytes()
    end = int.from_bytes(clean[32:36], "big") * int.from_bytes(clean[16:18], "big")
    assert clean[end - 64 : end] == bytes(64)
    path.write_bytes(clean[: end - 16] + b"a secret of hers" + clean[end:])

    def look(*, repair: bool) -> list[tuple[str, str, str]]:
        report = FsckReport()
        check_dead_space(tmp_path, report, repair=repair)
        return said(report)

    assert look(repair=False) == [("dead space", str(path), "reported")]
    assert look(repair=True) == [("dead space", str(path), "repaired")]
    assert b"a secret" not in path.read_bytes()
    assert look(repair=False) == []


@pytest.mark.req("AUT-8")
def test_a_body_that_no_row_names_is_found_and_removed(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path)
    gone, kept = large("a secret "), large("kept ")
    store.put_many("n", [kept])
    store.blobs.put(*gone)
    path = store.blobs.path(gone[0].digest)
    assert look_at(store, repair=False) == [("erased", str(path), "reported")]
    assert look_at(store, repair=True) == [("erased", str(path), "removed")]
    assert look_at(store, repair=True) == []
    assert store.get(("n",), kept[0]) == kept[1]
    # What was put aside is for a person to judge, and to remove.
    aside = store.blobs.root / "quarantine" / path.name
    aside.parent.mkdir()
    aside.write_bytes(b"a secret, damaged")
    assert look_at(store, repair=True) == [("erased", str(aside), "reported")]
    store.close()


def look_at(store: SqliteObjectStore, *, repair: bool) -> list[tuple[str, str, str]]:
    report = FsckReport()
    check_bodies(store, report, repair=repair)
    return said(report)


@pytest.mark.req("AUT-8")
def test_pages_are_looked_for_by_domain_and_old_ones_by_their_time(tmp_path: Path) -> None:
    name = domain_digest("alice").hex()
    folder, key = tmp_path / "pages" / name, tmp_path / "keys" / f"pages-{name}.secret"
    for path in (folder / "one", key):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"sealed")
        os.utime(path, ns=(1_000, 1_000))

    def old(domain: str, asked_ns: int) -> list[str]:
        report = FsckReport()
        check_old_pages(tmp_path, [domain], asked_ns, report)
        return [each.where for each in report.problems]

    report = FsckReport()
    check_pages(tmp_path, ["alice", "bob"], report)
    assert [each.where for each in report.problems] == [str(folder), str(key)]
    assert old("alice", 1_001) == [str(key), str(folder / "one")]
    assert old("alice", 1_000) == old("bob", 1_001) == []


@pytest.mark.req("AUT-8")
def test_the_key_of_a_source_that_is_kept_stays(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    for name in ("source-kept.ed25519", "source-lost.ed25519", "worker.ed25519"):
        (keys / name).write_bytes(b"k" * 32)
    report = FsckReport()
    check_source_keys(tmp_path, {"source-kept"}, report, repair=True)
    assert said(report) == [("erased", str(keys / "source-lost.ed25519"), "removed")]
    assert sorted(path.name for path in keys.iterdir()) == [
        "source-kept.ed25519",
        "worker.ed25519",
    ]
