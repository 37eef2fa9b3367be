"""kill -9 while pages are kept, evicted and erased: what was said to be kept is there afterwards,
every page that is complete is used again, and nothing unfinished stays (KV-6).

Each trial proves that the kill happened. A child that says so too early, and one that writes in
place, have to be caught by the same checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from store.files import UNFINISHED
from store.pages.header import domain_digest
from store.pages.tier import BOTH, Refused
from tests.crash import totals
from tests.crash.pages_child import SMALL_BYTES, conversation, singles
from tests.killed_children import ROUNDS, killed
from tests.killed_children import start as start_child
from tests.page_samples import chains_of, disk, files_below, talk

start = partial(start_child, "tests.crash.pages_child")


@dataclass
class After:
    """What opening the directory again found."""

    files_before: int
    unfinished_before: int
    reused: int
    refused: int
    evicted: int


def after(folder: Path, budget_bytes: int = 2**30) -> After:
    """Opens the directory again and reads all of the conversation; asserts that every page is
    right, and that every file is a page that is used."""
    names = [path.name for path in files_below(folder)]
    unfinished = sum(name.endswith(UNFINISHED) for name in names)
    store = disk(folder, budget_bytes=budget_bytes)
    pages = conversation()
    found = store.longest("ann", chains_of(pages))
    for info, (page, rows) in zip(found, pages, strict=False):
        assert info.page == page
        assert store.read(info, BOTH) == rows
    stats = store.stats()
    assert len(files_below(folder)) == stats.pages
    assert stats.bytes <= budget_bytes
    store.close()
    return After(len(names), unfinished, len(found), sum(stats.refused.values()), stats.evicted)


@pytest.mark.req("KV-6")
@pytest.mark.parametrize(
    ("when", "count", "least"),
    [("file", 1, 0), ("file", 9, 8), ("named", 2, 0), ("named", 9, 7), ("commit", 8, 3)],
)
def test_a_kill_while_keeping_loses_nothing(
    tmp_path: Path, when: str, count: int, least: int
) -> None:
    kept = killed(start(tmp_path, when, count))
    assert len(kept) >= least
    found = after(tmp_path)
    # Also a page that was complete and nobody had been told of.
    assert found.reused >= len(kept)
    assert found.reused == found.files_before - found.unfinished_before
    assert found.unfinished_before == (when == "file")
    assert found.refused == 0
    totals.killed("pages")


@pytest.mark.req("KV-6")
@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_kill_from_outside_loses_nothing(tmp_path: Path, round: int) -> None:
    child = start(tmp_path, "never", 0)
    assert child.stdout is not None
    seen = b"".join(child.stdout.readline() for _ in range(30 + 17 * round))
    child.kill()
    kept = killed(child, seen)
    assert len(kept) >= 30
    found = after(tmp_path)
    assert found.reused >= len(kept)
    assert found.refused == 0
    totals.killed("pages")


@pytest.mark.req("KV-4", "KV-6")
@pytest.mark.parametrize("count", [1, 7])
def test_a_kill_while_evicting_keeps_the_newest(tmp_path: Path, count: int) -> None:
    kept = killed(start(tmp_path, "removed", count))
    assert len(kept) > 10
    assert after(tmp_path, SMALL_BYTES).refused == 0
    store = disk(tmp_path, budget_bytes=SMALL_BYTES)
    pages = singles()
    there = [n for n in range(len(kept)) if store.longest("ann", [pages[n][0].chain])]
    # The oldest went, and one more each time; the rest are whole.
    assert there == kept[count:]
    for number in there:
        (info,) = store.longest("ann", [pages[number][0].chain])
        assert store.read(info, BOTH) == pages[number][1]
    store.close()


@pytest.mark.req("AUT-8")
def test_a_kill_while_erasing_can_be_finished(tmp_path: Path) -> None:
    killed(start(tmp_path, "dropped", 7))
    folder = tmp_path / domain_digest("bob").hex()
    assert len(list(folder.iterdir())) == 13
    store = disk(tmp_path)
    left = [store.longest("bob", chains_of(talk("bob", *range(20))))]
    for info in left[0]:
        assert not isinstance(store.read(info, BOTH), Refused)
    assert store.drop_domain("bob").pages == 13
    assert not folder.exists()
    assert len(store.longest("ann", chains_of(conversation()))) == 6
    store.close()


@pytest.mark.parametrize(("when", "count"), [("file", 5), ("named", 2)])
def test_control_saying_so_too_early_is_caught(tmp_path: Path, when: str, count: int) -> None:
    kept = killed(start(tmp_path, when, count, "early"))
    # A kill after the name is there loses nothing: only the one before it may.
    lost = len(kept) - after(tmp_path).reused
    assert lost == (when == "file")


def test_control_writing_in_place_is_caught(tmp_path: Path) -> None:
    kept = killed(start(tmp_path, "never", 5, "unsafe"))
    found = after(tmp_path)
    # Refused and removed: it cost a page, and gave no wrong row.
    assert found.files_before - found.unfinished_before == len(kept) + 1
    assert (found.reused, found.refused) == (len(kept), 1)


def test_a_store_goes_on_after_a_kill(tmp_path: Path) -> None:
    first = killed(start(tmp_path, "file", 4))
    second = killed(start(tmp_path, "named", 12))
    assert len(second) > len(first)
    assert after(tmp_path).reused >= len(second)
