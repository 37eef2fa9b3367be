"""The page writer: bounded, in order, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.writer import PageWriter
from protocol.page import PageRows
from store.pages.memory import MemoryPageTier
from store.pages.tier import Page
from tests.page_samples import TestClock, chains_of, talk

PAGE_BYTES = 144


def tier() -> MemoryPageTier:
    return MemoryPageTier(TestClock(), 2**20)


class SlowDisk(MemoryPageTier):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__(TestClock(), 2**20)
        self.let = threading.Event()

    def put_many(self, pages: Iterable[tuple[Page, PageRows]]) -> int:
        assert self.let.wait(60)
        return super().put_many(pages)


@pytest.mark.req("KV-4")
def test_a_thread_writes_what_was_offered_in_order() -> None:
    disk = tier()
    writer = PageWriter(disk, tier()).start()
    ann, bob = talk("ann", *range(30)), talk("bob", *range(30))
    for one, other in zip(ann, bob, strict=True):
        assert writer.offer(*one)
        assert writer.offer(*other)
    assert writer.flush(10)
    assert (
        len(disk.longest("ann", chains_of(ann))) == len(disk.longest("bob", chains_of(bob))) == 30
    )
    writer.close()
    writer.close()
    assert not writer.offer(*ann[0])


@pytest.mark.req("KV-4")
def test_a_full_queue_drops_and_never_waits() -> None:
    disk = SlowDisk()
    writer = PageWriter(disk, tier(), queue_bytes_max=3 * PAGE_BYTES).start()
    pages = talk("ann", *range(12))
    taken = [writer.offer(*page) for page in pages]
    # One or none of them is in the writer's hands.
    assert 3 <= sum(taken) <= 6
    assert writer.dropped == 12 - sum(taken)
    assert not writer.flush(0.01)
    disk.let.set()
    assert writer.flush(10)
    assert len(disk.longest("ann", chains_of(pages))) == taken.index(False)
    writer.close()


@pytest.mark.req("KV-3", "KV-4")
@given(full=st.lists(st.booleans(), min_size=8, max_size=8), kept=st.integers(0, 8))
def test_what_is_missing_before_a_page_is_written_first(full: list[bool], kept: int) -> None:
    """The disk takes some pages and not others; host memory lost the first `kept`."""
    disk, host = tier(), tier()
    writer = PageWriter(disk, host)
    pages = talk("ann", *range(9))
    for index, (page, rows) in enumerate(pages):
        if index >= kept:
            assert host.put(page, rows)
        disk.full = index < 8 and full[index]
        assert writer.offer(page, rows)
        writer.flush()
        # Never a page without those before it.
        found = [info.page.chain for info in disk.find("ann", chains_of(pages))]
        assert found == chains_of(pages)[: len(found)]
    lost = [index for index in range(min(kept, 8)) if full[index]]
    assert len(found) == (lost[0] if lost else 9)


def test_a_disk_that_raises_does_not_end_the_writing() -> None:
    disk, host = tier(), tier()
    writer = PageWriter(disk, host).start()
    real = disk.put_many
    calls = []

    def put_many(pages: Iterable[tuple[Page, PageRows]]) -> int:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("nobody expected this")
        return real(pages)

    disk.put_many = put_many  # type: ignore[method-assign]
    assert writer.offer(*talk("ann", 1)[0])
    assert writer.flush(10)
    assert writer.dropped == 1
    assert writer.offer(*talk("bob", 1)[0])
    assert writer.flush(10)
    assert disk.stats().pages == 1
    writer.close()


@pytest.mark.req("AUT-5", "AUT-8")
def test_what_is_forgotten_is_not_written() -> None:
    disk = SlowDisk()
    writer = PageWriter(disk, tier()).start()
    held = talk("public", *range(12))
    for page in [*held, *talk("ann", 1, 2), *talk("public", "a")]:
        writer.offer(*page)
    forgetting = threading.Thread(target=writer.forget, args=("public",))
    forgetting.start()
    # It waits for what is being written, whatever that is.
    disk.let.set()
    forgetting.join(60)
    assert not forgetting.is_alive()
    written = disk.stats().pages
    assert writer.flush(60)
    # Of the domain nothing more came, and of the other all.
    assert disk.stats().pages - written in (0, 2)
    assert len(disk.find("ann", chains_of(talk("ann", 1, 2)))) == 2
    assert not disk.find("public", chains_of(talk("public", "a")))
    assert writer.offer(*talk("ann", 3)[0])
    assert writer.flush(60)
    writer.close()


@pytest.mark.req("AUT-5", "KV-3")
def test_a_private_page_continues_a_public_one() -> None:
    """It is written if the public pages before it are there, or can be taken along."""
    disk, host = tier(), tier()
    writer = PageWriter(disk, host)
    last = talk("ann", 1, 2, 3)[2]
    writer.offer(*last)
    writer.flush()
    assert (disk.stats().pages, writer.dropped) == (0, 1)
    for page in talk("public", 1, 2):
        host.put(*page)
    writer.offer(*last)
    writer.flush()
    assert len(disk.find("public", chains_of(talk("public", 1, 2)))) == 2
    assert len(disk.find("ann", [last[0].chain])) == 1
