from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from store.files import make_directory, sync_directory, write_unfinished


def synced(log: list[str]) -> object:
    """A sync that notes what it was asked for."""
    return lambda descriptor: log.append(os.readlink(f"/proc/self/fd/{descriptor}"))


def test_a_directory_is_made_private_and_its_name_is_synced(tmp_path: Path) -> None:
    log: list[str] = []
    make_directory(tmp_path / "a" / "b", fsync=synced(log))
    assert log == [str(tmp_path), str(tmp_path / "a")]
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    make_directory(tmp_path / "a" / "b", fsync=synced(log))
    assert len(log) == 2


def test_a_file_is_whole_synced_and_new(tmp_path: Path) -> None:
    log: list[str] = []
    path = tmp_path / "x"
    write_unfinished(path, b"body", mode=0o600, fsync=synced(log))
    assert path.read_bytes() == b"body"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert log == [str(path)]
    with pytest.raises(FileExistsError):
        write_unfinished(path, b"other", mode=0o600)
    assert path.read_bytes() == b"body"


def test_a_failed_sync_leaves_no_file(tmp_path: Path) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "bad disk")

    with pytest.raises(OSError, match="bad disk"):
        write_unfinished(tmp_path / "x", b"body", mode=0o600, fsync=refuse)
    assert list(tmp_path.iterdir()) == []


def test_only_a_directory_is_synced_as_one(tmp_path: Path) -> None:
    sync_directory(tmp_path)
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "x")
