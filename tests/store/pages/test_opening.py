"""Opening a directory of pages: one owner, a reason if it fails, and nothing left open then."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from protocol.errors import StoreFault
from store.pages.disk import PageStore
from tests.page_samples import TestClock, disk, key_for, no_sync


def test_the_directory_has_one_owner(tmp_path: Path) -> None:
    store = disk(tmp_path)
    with pytest.raises(StoreFault, match="in use by another process"):
        disk(tmp_path)
    store.close()
    disk(tmp_path).close()


class Interrupted(PageStore):
    """Stopped by its user while it looks through its files."""

    def _recover(self, rows: object, used: object) -> None:
        raise KeyboardInterrupt


def test_a_start_that_is_broken_off_leaves_nothing_open(tmp_path: Path) -> None:
    disk(tmp_path).close()
    threads, files = threading.active_count(), os.listdir("/proc/self/fd")
    with pytest.raises(KeyboardInterrupt):
        Interrupted(tmp_path, TestClock(), key_for, 2**20, fsync=no_sync)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == len(files)
    disk(tmp_path).close()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFault, match="cannot be used"):
        disk(tmp_path / "file" / "pages")
