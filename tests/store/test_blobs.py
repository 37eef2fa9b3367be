from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from protocol.errors import CorruptObject, StoreFault
from protocol.ids import BlockId
from store.blobs import BlobFiles
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.stores import large

BODY = b"a large body"
ID = BlockId.of(BODY)


def test_a_body_lies_under_its_digest_and_is_read_only(tmp_path: Path) -> None:
    blobs = BlobFiles(tmp_path / "blobs")
    blobs.put(ID, BODY)
    name = ID.digest.hex()
    path = tmp_path / "blobs" / name[:2] / name[2:4] / name
    assert list(blobs.files()) == [path]
    assert path.read_bytes() == BODY == blobs.get(ID)
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_order_that_a_power_cut_needs(tmp_path: Path) -> None:
    log: list[tuple[str, bool]] = []
    blobs = BlobFiles(
        tmp_path,
        fsync=lambda fd: log.append((os.readlink(f"/proc/self/fd/{fd}"), path.exists())),
    )
    path = blobs.path(ID.digest)
    blobs.put(ID, BODY)
    assert log == [
        (str(tmp_path), False),
        (str(path.parent.parent), False),
        (f"{path}.unfinished", False),
        (str(path.parent), True),
    ]
    # Putting again writes nothing, but the name is made durable all the same.
    log.clear()
    blobs.put(ID, BODY)
    assert log == [(str(path.parent), True)]


@pytest.mark.req("ID-5")
def test_damaged_bytes_are_never_given_and_putting_mends_them(tmp_path: Path) -> None:
    blobs = BlobFiles(tmp_path)
    blobs.put(ID, BODY)
    path = blobs.path(ID.digest)
    path.chmod(0o600)
    path.write_bytes(b"A" + BODY[1:])
    with pytest.raises(CorruptObject):
        blobs.get(ID)
    blobs.put(ID, BODY)
    assert blobs.get(ID) == BODY


def test_what_a_crash_left_is_written_over(tmp_path: Path) -> None:
    blobs = BlobFiles(tmp_path)
    path = blobs.path(ID.digest)
    path.parent.mkdir(parents=True)
    path.with_name(path.name + ".unfinished").write_bytes(BODY[:3])
    blobs.put(ID, BODY)
    assert list(blobs.files()) == [path]
    assert blobs.get(ID) == BODY


def test_remove_is_durable_and_twice_is_once(tmp_path: Path) -> None:
    log: list[int] = []
    blobs = BlobFiles(tmp_path, fsync=log.append)
    blobs.put(ID, BODY)
    log.clear()
    assert blobs.remove(blobs.path(ID.digest))
    assert not blobs.remove(blobs.path(ID.digest))
    assert len(log) == 1
    with pytest.raises(FileNotFoundError):
        blobs.get(ID)


def test_a_failed_sync_of_a_file_stops_the_store(tmp_path: Path) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "bad disk")

    blobs = BlobFiles(tmp_path / "blobs")
    store = SqliteObjectStore(Database(tmp_path / "objects.db"), blobs)
    store.blobs = BlobFiles(tmp_path / "blobs", fsync=refuse)
    one = large("one ")
    with pytest.raises(StoreFault, match="bad disk"):
        store.put_many("n", [one])
    with pytest.raises(StoreFault, match="has stopped"):
        store.get(("n",), one[0])
    store.close()


def test_a_full_disk_does_not_stop_the_store(tmp_path: Path) -> None:
    full = True

    def refuse(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "no space")
        os.fsync(descriptor)

    BlobFiles(tmp_path / "blobs")
    blobs = BlobFiles(tmp_path / "blobs", fsync=refuse)
    store = SqliteObjectStore(Database(tmp_path / "objects.db"), blobs)
    one = large("one ")
    with pytest.raises(StoreFault, match="disk is full"):
        store.put_many("n", [one])
    full = False
    store.put_many("n", [one])
    assert store.get(("n",), one[0]) == one[1]
    store.close()
