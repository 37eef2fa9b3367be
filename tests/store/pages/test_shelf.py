from __future__ import annotations

from protocol.page import PageRows
from store.pages.catalog import key_of
from store.pages.header import domain_digest
from store.pages.shelf import Shelf, key_of_info
from store.pages.tier import header_of, info_of
from tests.page_samples import TestClock, talk

PAGE, ROWS = talk("ann", "a")[0]
HEADER = header_of(PAGE, ROWS)


class Bare(Shelf):
    """A shelf with one page, whose rows are nowhere."""

    def __init__(self) -> None:
        super().__init__(TestClock(), 1_000, None)
        self._catalog.add(HEADER, 100, 0)


def test_the_key_of_an_info_is_that_of_its_header() -> None:
    assert key_of_info(info_of("ann", HEADER)) == key_of(HEADER)
    assert key_of(HEADER)[0] == domain_digest("ann")


def test_a_lease_is_for_the_very_page() -> None:
    shelf = Bare()
    (info,) = shelf.longest("ann", [PAGE.chain])
    other = info_of("ann", header_of(PAGE, PageRows(full=b"other", sliding=b"")))
    with shelf.lease([other]) as held:
        assert held == []
    with shelf.lease([info]) as held, shelf.lease([info, other]) as again:
        assert held == again == [info]
        assert shelf.stats().leased == 1
    assert shelf.stats().leased == 0


def test_stats_are_a_copy() -> None:
    shelf = Bare()
    before = shelf.stats()
    before.refused["io"] = 3
    before.hits = 9
    assert shelf.stats().refused == {}
    assert (shelf.stats().pages, shelf.stats().bytes, shelf.stats().hits) == (1, 100, 0)
