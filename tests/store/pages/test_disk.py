"""What the disk adds to the contract: durability, a full disk, a lost index, whole erasure."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from pathlib import Path

import apsw
import pytest

from protocol.errors import StoreFault
from protocol.page import PageRows
from store.pages.disk import PAUSE_NS, USE_GRAIN_NS, PageStore
from store.pages.header import domain_digest
from store.pages.tier import BOTH, PUBLIC, Refused
from tests.page_samples import (
    MODEL_FULL_BYTES,
    MODEL_SLIDING_BYTES,
    TestClock,
    chain,
    chains_of,
    disk,
    files_below,
    key_for,
    no_key,
    no_sync,
    one,
    rows_of,
    talk,
    wrong,
)

PAGES = talk("ann", *"abcd")


class FullDisk:
    """Syncs nothing, and refuses with `number` while it is set."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, descriptor: int) -> None:
        if self.number is not None and not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.req("KV-6")
def test_pages_are_there_after_opening_again(tmp_path: Path) -> None:
    store = disk(tmp_path)
    assert store.put_many(PAGES) == 4
    before = store.stats()
    store.close()
    again = disk(tmp_path)
    infos = again.longest("ann", chains_of(PAGES))
    assert [info.page for info in infos] == [page for page, _ in PAGES]
    assert not any(wrong(again, info) for info in infos)
    assert (again.stats().pages, again.stats().bytes) == (before.pages, before.bytes)
    assert again.stats().index_errors == 0
    again.close()


def test_files_are_private(tmp_path: Path) -> None:
    store = disk(tmp_path / "pages")
    store.put_many(PAGES)
    assert stat.S_IMODE((tmp_path / "pages").stat().st_mode) == 0o700
    for path in (tmp_path / "pages").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    store.close()


@pytest.mark.req("KV-3")
@pytest.mark.parametrize("tokens", [256, 24])
def test_a_turn_costs_five_percent_at_most_index_and_all(tmp_path: Path, tokens: int) -> None:
    store = disk(tmp_path)
    pages = [
        (page, rows_of(page, MODEL_FULL_BYTES * tokens, MODEL_SLIDING_BYTES * tokens))
        for page, _ in talk("ann", *range(3), tokens=tokens)
    ]
    assert store.put_many(pages) == 3
    store.close()
    payload = 3 * 18_432 * tokens
    assert store.stats().written_bytes <= 1.05 * payload
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk <= 1.05 * payload


@pytest.mark.req("KV-6")
def test_a_lost_index_is_rebuilt_from_the_heads(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put_many(PAGES)
    store.close()
    for path in tmp_path.glob("index.db*"):
        path.unlink()
    again = disk(tmp_path)
    assert len(again.longest("ann", chains_of(PAGES))) == 4
    again.close()
    connection = apsw.Connection(str(tmp_path / "index.db"))
    assert connection.execute("SELECT count(*) FROM pages").get == 4
    connection.close()


@pytest.mark.req("KV-6")
def test_unfinished_files_are_ignored_and_reclaimed(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put_many(PAGES[:2])
    folder = tmp_path / domain_digest("ann").hex()
    store.close()
    (folder / f"{PAGES[2][0].chain}.unfinished").write_bytes(b"half a page")
    again = disk(tmp_path)
    assert len(again.longest("ann", chains_of(PAGES))) == 2
    assert again.stats().reclaimed == 1
    assert len(files_below(tmp_path)) == 2
    again.close()


def test_all_of_it_may_be_deleted_while_it_is_in_use(tmp_path: Path) -> None:
    store = disk(tmp_path / "pages")
    store.put_many(PAGES)
    infos = store.longest("ann", chains_of(PAGES))
    shutil.rmtree(tmp_path / "pages")
    found = store.read(infos[0])
    assert isinstance(found, Refused)
    assert found.reason == "missing"
    assert store.longest("ann", chains_of(PAGES)) == []
    # Those it still believes in are written again when they are put again.
    assert store.put_many(PAGES) == 4
    assert not any(wrong(store, info) for info in store.longest("ann", chains_of(PAGES)))
    store.close()
    again = disk(tmp_path / "pages")
    assert len(again.longest("ann", chains_of(PAGES))) == 4
    again.close()


@pytest.mark.req("KV-4")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_pauses_publication_and_never_reading(
    tmp_path: Path, number: int
) -> None:
    clock, full = TestClock(), FullDisk()
    store = PageStore(tmp_path, clock, key_for, 2**20, fsync=full)
    assert store.put_many(PAGES[:2]) == 2
    full.number = number
    assert store.put_many(PAGES) == 2
    assert store.stats().paused
    full.number = None
    # It is not asked again for a while, and what is there is still there.
    assert store.put(*PAGES[2]) is False
    assert store.put(*PAGES[1]) is True
    infos = store.longest("ann", chains_of(PAGES))
    assert len(infos) == 2
    assert all(store.read(info, BOTH) == rows_of(info.page) for info in infos)
    clock.turn(PAUSE_NS / 10**9)
    assert store.put_many(PAGES) == 4
    stats = store.stats()
    assert (stats.paused, stats.write_errors, stats.while_paused) == (False, 1, 1)
    assert len(files_below(tmp_path)) == 4
    store.close()


def test_a_clock_that_is_set_back_does_not_prolong_the_pause(tmp_path: Path) -> None:
    clock, full = TestClock(), FullDisk()
    store = PageStore(tmp_path, clock, key_for, 2**20, fsync=full)
    full.number = errno.ENOSPC
    assert store.put(*PAGES[0]) is False
    full.number = None
    clock.turn(-3600)
    assert store.put(*PAGES[0]) is True
    store.close()


def test_a_name_that_is_not_durable_is_not_acknowledged(tmp_path: Path) -> None:
    refuse = True
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if refuse and path.endswith(domain_digest("ann").hex()):
            raise OSError(errno.EIO, "bad disk")
        synced.append(path)

    store = PageStore(tmp_path, TestClock(), key_for, 2**20, fsync=fsync)
    assert store.put_many(PAGES[:2]) == 0
    assert store.stats().write_errors == 1
    refuse = False
    # The page is there; putting it again makes its name durable before it says so.
    synced.clear()
    assert store.put(*PAGES[0]) is True
    assert synced == [str(tmp_path / domain_digest("ann").hex())]
    synced.clear()
    assert store.put(*PAGES[0]) is True
    assert synced == []
    store.close()


def test_a_key_that_is_not_to_be_had_costs_the_page_nothing(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put_many(PAGES[:1])
    store.close()
    keyless = PageStore(tmp_path, TestClock(), no_key, 2**20, fsync=no_sync)
    info = one(keyless, PAGES[0][0])
    found = keyless.read(info)
    assert isinstance(found, Refused)
    assert found.reason == "key"
    assert keyless.put(*PAGES[1]) is False
    assert keyless.put_many(talk(PUBLIC, "a")) == 1
    assert keyless.stats().refused == {"key": 2}
    keyless.close()
    short = PageStore(tmp_path, TestClock(), lambda _: bytes(16), 2**20, fsync=no_sync)
    assert isinstance(short.read(info), Refused)
    assert short.put(*PAGES[1]) is False
    short.close()
    again = disk(tmp_path)
    assert again.read(info, BOTH) == PAGES[0][1]
    again.close()


@pytest.mark.req("AUT-8")
def test_another_key_opens_nothing(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put_many(PAGES[:1])
    info = one(store, PAGES[0][0])
    store.close()
    other = PageStore(tmp_path, TestClock(), lambda _: bytes(32), 2**20, fsync=no_sync)
    found = other.read(info)
    assert isinstance(found, Refused)
    assert found.reason == "seal"
    assert files_below(tmp_path) == []
    other.close()


def everything(root: Path) -> bytes:
    """All names and all bytes below `root`."""
    return b"\n".join(
        str(path.relative_to(root)).encode() + (path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    )


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("domain", ["ann", PUBLIC])
def test_dropping_a_domain_leaves_no_byte_of_it(tmp_path: Path, domain: str) -> None:
    store = disk(tmp_path)
    mine, theirs = talk(domain, *range(60)), talk("bob", *"xyz")
    for pages in zip(mine[:3], theirs, strict=True):
        store.put_many(pages)
    store.put_many(mine)
    (tmp_path / domain_digest(domain).hex() / f"{chain('q')}.unfinished").write_bytes(b"half")

    def traces(root: Path, pages: list[tuple[object, PageRows]] = mine) -> list[str]:
        held = everything(root)
        found = ["domain"] if domain_digest(domain) in held else []
        found += ["folder"] if domain_digest(domain).hex().encode() in held else []
        for page, rows in mine:
            found += [str(page.start)] if page.chain.digest in held else []
            found += [str(page.chain)] if str(page.chain).encode() in held else []
            found += ["rows"] if rows.full in held or rows.sliding in held else []
        return found

    # The same look finds them before: what it does not find afterwards is gone.
    store.close()
    assert "folder" in traces(tmp_path)
    assert "domain" in traces(tmp_path)
    assert ("rows" in traces(tmp_path)) == (domain == PUBLIC)
    store = disk(tmp_path)
    dropped = store.drop_domain(domain)
    assert (dropped.pages, dropped.files) == (60, 60)
    assert traces(tmp_path) == []
    assert len(store.longest("bob", chains_of(theirs))) == 3
    store.close()
    assert traces(tmp_path) == []
    again = disk(tmp_path)
    assert len(again.longest("bob", chains_of(theirs))) == 3
    assert again.stats().pages == 3
    again.close()


@pytest.mark.req("AUT-8")
def test_an_erasure_that_fails_says_so(tmp_path: Path) -> None:
    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path) and armed:
            raise OSError(errno.EIO, "bad disk")

    armed = False
    store = PageStore(tmp_path, TestClock(), key_for, 2**20, fsync=fsync)
    store.put_many(PAGES)
    store.put_many(talk("bob", "a"))
    armed = True
    with pytest.raises(StoreFault, match="could not be erased"):
        store.drop_domain("ann")
    armed = False
    assert store.drop_domain("ann").pages == 0
    assert store.stats().pages == 1
    store.close()


def test_the_order_of_use_outlives_a_restart_coarsely(tmp_path: Path) -> None:
    clock = TestClock()
    store = disk(tmp_path, clock)
    pages = [talk("ann", name)[0] for name in "abc"]
    for page in pages:
        store.put(*page)
        clock.turn(1)
    clock.turn(USE_GRAIN_NS / 10**9)
    with store.lease([one(store, pages[0][0])]):
        pass
    size = store.stats().bytes // 3
    # A crash: nothing is written at the end.
    store._index.flush()
    again = tmp_path.with_name("again")
    shutil.copytree(tmp_path, again)
    store.close()
    reopened = disk(again, clock, budget_bytes=3 * size)
    assert reopened.put(*talk("ann", "d")[0])
    kept = [bool(reopened.longest("ann", [page.chain])) for page, _ in pages]
    assert kept == [True, False, True]
    reopened.close()


def test_a_smaller_budget_is_met_on_opening(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put_many(PAGES)
    total = store.stats().bytes
    store.close()
    again = disk(tmp_path, budget_bytes=total // 2)
    assert again.stats().bytes <= total // 2
    left = again.longest("ann", chains_of(PAGES))
    assert len(left) == again.stats().pages == len(files_below(tmp_path))
    assert not any(wrong(again, info) for info in left)
    again.close()


def test_rebuilding_keeps_the_order_of_use(tmp_path: Path) -> None:
    store = disk(tmp_path)
    pages = [talk("ann", name)[0] for name in "abc"]
    store.put_many(pages)
    with store.lease([one(store, pages[0][0])]):
        pass
    assert store.rebuild() == 3
    store._catalog.budget_bytes = store._catalog.domain_budget_bytes = store.stats().bytes
    assert store.put(*talk("ann", "d")[0])
    assert [bool(store.longest("ann", [page.chain])) for page, _ in pages] == [True, False, True]
    store.close()


def test_readers_go_on_while_others_write_and_evict(tmp_path: Path) -> None:
    store = disk(tmp_path, budget_bytes=20_000)
    bad: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with store.lease(store.longest("ann", chains_of(PAGES))) as held:
                for info in held:
                    found = store.read(info, BOTH)
                    if found != rows_of(info.page):
                        bad.append(found)

    store.put_many(PAGES)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(150):
        store.put_many(talk("bob", number, number))
        if number % 10 == 0:
            store.put_many(PAGES)
    stop.set()
    for reader in readers:
        reader.join()
    assert bad == []
    stats = store.stats()
    assert stats.evicted > 100
    assert stats.hits > 0
    assert stats.refused == {}
    store.close()
