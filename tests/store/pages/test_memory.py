"""Where the fake in memory is stricter than the disk; the rest is the contract suite."""

from __future__ import annotations

import pytest

from protocol.errors import ContentError, StoreFault
from protocol.page import PageRows
from store.pages.memory import MemoryPageTier
from store.pages.tier import Refused, header_of
from tests.page_samples import TestClock, chains_of, one, talk


@pytest.fixture
def tier() -> MemoryPageTier:
    return MemoryPageTier(TestClock(), 2**20)


def test_a_page_that_does_not_continue_its_parent(tier: MemoryPageTier) -> None:
    tier.put(*talk("ann", "a")[0])
    with pytest.raises(ContentError, match="where its parent ends"):
        tier.put(*talk("ann", "a", "b", tokens=25)[1])


def test_sections_that_there_are_not(tier: MemoryPageTier) -> None:
    page, rows = talk("ann", "a")[0]
    tier.put(page, rows)
    for sections in ((), ("ful",), ("full", "rows")):
        with pytest.raises(ContentError, match="sections are among"):
            tier.read(one(tier, page), sections)  # type: ignore[arg-type]


def test_a_leased_page_must_be_released_before_closing(tier: MemoryPageTier) -> None:
    page, rows = talk("ann", "a")[0]
    tier.put(page, rows)
    with tier.lease([one(tier, page)]), pytest.raises(StoreFault, match="1 pages are leased"):
        tier.close()
    tier.close()


def test_a_spoilt_page_is_refused_once_and_gone(tier: MemoryPageTier) -> None:
    pages = talk("ann", *"ab")
    tier.put_many(pages)
    infos = tier.longest("ann", chains_of(pages))
    tier.spoil(infos[0])
    found = tier.read(infos[0])
    assert isinstance(found, Refused)
    assert found.reason == "digest"
    assert tier.longest("ann", chains_of(pages)) == []
    assert isinstance(tier.read(infos[1]), PageRows)
    assert tier.put(*pages[0])
    assert tier.longest("ann", chains_of(pages)) == infos


def test_a_full_disk(tier: MemoryPageTier) -> None:
    tier.full = True
    assert tier.put(*talk("ann", "a")[0]) is False
    assert tier.stats().write_errors == 1
    tier.full = False
    assert tier.put(*talk("ann", "a")[0]) is True
    assert tier.stats().bytes == sum(
        (header.full_bytes + header.sliding_bytes) for header in [header_of(*talk("ann", "a")[0])]
    )
