"""Opening a directory of pages: one owner, a reason if it fails, and nothing left open then."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from protocol.errors import StoreFault
from store.pages.disk import PageStore
from store.pages.header import domain_digest
from store.pages.tier import Page
from tests.page_samples import TestClock, chains_of, disk, key_for, no_sync, overwrite, talk


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


@pytest.mark.req("KV-3", "KV-8")
def test_what_was_lost_meanwhile_is_told_once_to_whose_it_was(tmp_path: Path) -> None:
    anns, bobs = talk("ann", *"abc"), talk("bob", *"abc")
    store = disk(tmp_path)
    store.put_many([*anns, *bobs])
    store.close()
    gone, cut, other = (_file(tmp_path, page) for page, _ in (*anns[:2], bobs[2]))
    gone.unlink()
    overwrite(cut, cut.read_bytes()[:-1])
    overwrite(other, b"")
    store = disk(tmp_path)
    assert store.stats().refused == {"size": 1, "header": 1}
    assert store.lost("carl", chains_of(anns)) == []
    # Put again, a page is there, and nothing is to be told of it.
    assert store.put(*anns[1])
    assert store.lost("ann", chains_of(anns)) == ["missing"]
    assert store.lost("ann", chains_of(anns)) == []
    store.drop_domain("bob")
    assert store.lost("bob", chains_of(bobs)) == []
    store.close()
    store = disk(tmp_path)
    assert store.lost("ann", chains_of(anns)) == []
    store.close()


def _file(root: Path, page: Page) -> Path:
    return root / domain_digest(page.domain).hex() / str(page.chain)
