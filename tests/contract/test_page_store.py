"""The contract of `store.pages.tier`, held by the store on disk and the strict fake."""

from __future__ import annotations

import pytest

from protocol.errors import ContentError, StoreFault
from protocol.page import PageRows, page_digest
from store.pages.tier import BOTH, PUBLIC, Page, PageInfo, Refused
from tests.page_samples import (
    FULL_BYTES,
    PROFILE,
    SLIDING_BYTES,
    Make,
    chain,
    chains_of,
    names_of,
    one,
    talk,
    wrong,
)


@pytest.mark.req("KV-5", "AUT-5")
def test_find_gives_what_is_kept_in_the_domain_itself_with_its_gaps(make: Make) -> None:
    tier = make()
    pages = talk("ann", *"abcd")
    tier.put(*pages[0])
    tier.put(*pages[2])
    tier.put(*talk(PUBLIC, *"ab")[1])
    found = tier.find("ann", chains_of(pages))
    assert [info.page for info in found] == [pages[0][0], pages[2][0]]
    assert tier.read(found[1], BOTH) == pages[2][1]
    assert tier.find("bob", chains_of(pages)) == []


@pytest.mark.req("KV-3")
def test_a_page_comes_back_as_it_was_put(make: Make) -> None:
    tier = make()
    (page, rows), *_ = talk("ann", "a")
    assert tier.put(page, rows) is True
    info = one(tier, page)
    assert info.page == page
    assert info.digest == page_digest(rows)
    assert (info.full_bytes, info.sliding_bytes) == (FULL_BYTES, SLIDING_BYTES)
    assert tier.read(info, BOTH) == rows
    assert tier.read(info) == PageRows(full=rows.full, sliding=b"")
    assert tier.read(info, ("sliding",)) == PageRows(full=b"", sliding=rows.sliding)
    stats = tier.stats()
    assert (stats.pages, stats.hits, stats.written) == (1, 3, 1)
    assert stats.read_bytes == 2 * (FULL_BYTES + SLIDING_BYTES)


def test_a_model_without_a_sliding_section(make: Make) -> None:
    tier = make()
    (page, _), *_ = talk("ann", "a")
    rows = PageRows(full=b"rows", sliding=b"")
    assert tier.put(page, rows)
    assert tier.read(one(tier, page), BOTH) == rows


def test_putting_again_is_once_and_the_first_rows_stay(make: Make) -> None:
    tier = make()
    (page, rows), *_ = talk("ann", "a")
    assert tier.put(page, rows)
    assert tier.put(page, rows)
    assert tier.put(page, PageRows(full=rows.full, sliding=b"other")) is False
    stats = tier.stats()
    assert (stats.pages, stats.written, stats.conflicts) == (1, 1, 1)
    assert tier.read(one(tier, page), BOTH) == rows


def test_a_missing_page_and_a_stale_info(make: Make) -> None:
    tier = make()
    (page, rows), *_ = talk("ann", "a")
    assert tier.longest("ann", [page.chain]) == []
    tier.put(page, rows)
    info = one(tier, page)
    tier.drop_domain("ann")
    gone = tier.read(info)
    assert isinstance(gone, Refused)
    assert gone.reason == "missing"
    tier.put(page, PageRows(full=b"other", sliding=b""))
    stale = tier.read(info)
    assert isinstance(stale, Refused)
    assert stale.reason == "stale"
    assert tier.read(one(tier, page)) == PageRows(full=b"other", sliding=b"")
    assert tier.stats().refused == {"missing": 1, "stale": 1}


@pytest.mark.req("KV-5")
def test_the_longest_prefix_over_append_edit_and_branch(make: Make) -> None:
    tier = make()
    first = talk("ann", *"abcd")
    assert tier.put_many(first) == 4
    assert names_of(tier.longest("ann", chains_of(first))) == chains_of(first)
    appended = chains_of(talk("ann", *"abcdef"))
    assert names_of(tier.longest("ann", appended)) == appended[:4]
    # A middle edit keeps everything before it, and nothing behind it that looks the same.
    edited = chains_of(talk("ann", *"abXd"))
    assert names_of(tier.longest("ann", edited)) == edited[:2]
    branch = talk("ann", *"abY")
    assert tier.put(*branch[2])
    assert names_of(tier.longest("ann", chains_of(branch))) == chains_of(branch)
    assert tier.longest("ann", []) == []


def test_a_hole_ends_the_prefix(make: Make) -> None:
    tier = make()
    pages = talk("ann", *"abcd")
    tier.put_many(pages[:1] + pages[2:])
    assert names_of(tier.longest("ann", chains_of(pages))) == chains_of(pages)[:1]
    tier.put(*pages[1])
    assert names_of(tier.longest("ann", chains_of(pages))) == chains_of(pages)


def test_finding_pages_whatever_lies_between(make: Make) -> None:
    tier = make()
    pages = talk("ann", *"abcd")
    tier.put_many([pages[0], pages[2]])
    tier.put_many(talk(PUBLIC, *"abcd")[3:])
    assert names_of(tier.find("ann", chains_of(pages))) == chains_of([pages[0], pages[2]])
    assert names_of(tier.find(PUBLIC, chains_of(pages))) == chains_of(pages[3:])
    assert tier.find("bob", chains_of(pages)) == []


@pytest.mark.req("AUT-5")
def test_two_domains_share_nothing_but_what_is_public(make: Make) -> None:
    tier = make()
    public, private = talk(PUBLIC, *"ab"), talk("ann", *"abcd")
    assert tier.put_many(public) == 2
    assert tier.put_many(private[2:]) == 2
    chains = chains_of(private)
    mine = tier.longest("ann", chains)
    assert [info.page.domain for info in mine] == [PUBLIC, PUBLIC, "ann", "ann"]
    assert all(not wrong(tier, info) for info in mine)
    assert names_of(tier.longest("bob", chains)) == chains[:2]
    assert names_of(tier.longest(PUBLIC, chains)) == chains[:2]
    # An info that names another domain opens nothing there.
    page = mine[3].page
    forged = Page("bob", page.chain, page.parent, page.profile, page.start, page.tokens)
    asked = tier.read(PageInfo(forged, mine[3].digest, FULL_BYTES, SLIDING_BYTES))
    assert isinstance(asked, Refused)
    assert asked.reason == "missing"
    # The same page in two domains is two pages.
    theirs = talk("bob", *"abcd")
    assert tier.put_many(theirs[2:]) == 2
    assert tier.drop_domain("ann").pages == 2
    assert names_of(tier.longest("bob", chains)) == chains


@pytest.mark.req("AUT-8")
def test_dropping_a_domain_leaves_the_others(make: Make) -> None:
    tier = make()
    ann, bob, public = talk("ann", *"abc"), talk("bob", *"abc"), talk(PUBLIC, "p")
    for pages in (ann, bob, public):
        tier.put_many(pages)
    with tier.lease(tier.longest("ann", chains_of(ann))) as held:
        dropped = tier.drop_domain("ann")
        assert (dropped.pages, dropped.files) == (3, 3)
        assert dropped.bytes >= 3 * (FULL_BYTES + SLIDING_BYTES)
        assert all(isinstance(tier.read(info), Refused) for info in held)
    assert tier.longest("ann", chains_of(ann)) == []
    assert len(tier.longest("bob", chains_of(bob))) == 3
    assert tier.drop_domain("ann").pages == 0
    assert tier.drop_domain(PUBLIC).pages == 1
    assert tier.stats().pages == 3
    assert tier.put_many(ann) == 3


def test_rebuilding_changes_nothing_that_is_sound(make: Make) -> None:
    tier = make()
    pages = talk("ann", *"abc")
    tier.put_many(pages)
    before = tier.stats()
    assert tier.rebuild() == 3
    assert tier.stats() == before
    infos = tier.longest("ann", chains_of(pages))
    assert len(infos) == 3
    assert not any(wrong(tier, info) for info in infos)


def test_pages_that_cannot_be(make: Make) -> None:
    tier = make()
    rows = PageRows(full=b"rows", sliding=b"")
    for parent, start, tokens in (
        (None, 0, 0),
        (None, 24, 24),
        (chain("a"), 0, 24),
        (chain("a"), -24, 24),
        (None, 0, -1),
        (chain("a"), 2**60, 24),
    ):
        with pytest.raises(ContentError):
            tier.put(Page("ann", chain("b"), parent, PROFILE, start, tokens), rows)
    good = Page("ann", chain("b"), None, PROFILE, 0, 24)
    with pytest.raises(ContentError):
        tier.put(good, PageRows(full=b"", sliding=b"rows"))
    for domain in ("", "x" * 256, "ß" * 128):
        with pytest.raises(ContentError):
            tier.longest(domain, [])
    assert tier.put(good, rows)


def test_nothing_works_after_closing(make: Make) -> None:
    tier = make()
    (page, rows), *_ = talk("ann", "a")
    tier.put(page, rows)
    info = one(tier, page)
    tier.close()
    tier.close()
    for call in (
        lambda: tier.put(page, rows),
        lambda: tier.longest("ann", []),
        lambda: tier.read(info),
        lambda: tier.drop_domain("ann"),
        tier.rebuild,
        lambda: tier.lease([info]).__enter__(),
    ):
        with pytest.raises(StoreFault, match="closed"):
            call()
