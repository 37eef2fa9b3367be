"""The contract of `store.pages.tier`, held by the store on disk and the strict fake."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ContentError, StoreFault
from protocol.ids import ChainId
from protocol.page import PageRows, page_digest
from store.pages.tier import BOTH, FULL, PUBLIC, Page, PageInfo, PageTier, Refused
from tests.page_samples import (
    FULL_BYTES,
    KINDS,
    PROFILE,
    SLIDING_BYTES,
    Pages,
    TestClock,
    chain,
    chains_of,
    one,
    rows_of,
    talk,
    tier_of,
    wrong,
)
from tests.stores import FAST

Make = Callable[..., PageTier]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> Iterator[Make]:
    made: list[PageTier] = []

    def make_one(budget_bytes: int = 2**20, domain_budget_bytes: int | None = None) -> PageTier:
        root = tmp_path / str(len(made))
        made.append(tier_of(request.param, root, clock, budget_bytes, domain_budget_bytes))
        return made[-1]

    yield make_one
    for tier in made:
        tier.close()


def cost(make: Make) -> int:
    """What a page of the samples that has a parent costs in this kind of tier: the most."""
    tier = make()
    first, second = talk("ann", "a", "b")
    assert tier.put(*first)
    before = tier.stats().bytes
    assert tier.put(*second)
    return tier.stats().bytes - before


def names_of(infos: list[PageInfo]) -> list[ChainId]:
    return [info.page.chain for info in infos]


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


@pytest.mark.req("KV-4")
def test_the_budget_holds_and_the_least_recently_used_go_first(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=4 * size)
    pages = [talk("ann", name)[0] for name in "abcd"]
    assert tier.put_many(pages) == 4
    with tier.lease([one(tier, pages[0][0])]):
        pass
    assert tier.put(*talk("ann", "e")[0])
    kept = [bool(tier.longest("ann", [page.chain])) for page, _ in pages]
    assert kept == [True, False, True, True]
    stats = tier.stats()
    assert stats.evicted == 1
    assert stats.bytes <= 4 * size


@pytest.mark.req("KV-4")
def test_leaves_go_first_so_that_a_prefix_stays_a_prefix(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=6 * size)
    pages = talk("ann", *"abcdef")
    assert tier.put_many(pages) == 6
    assert tier.put_many(talk("ann", *"XY")) == 2
    assert names_of(tier.longest("ann", chains_of(pages))) == chains_of(pages)[:4]


@pytest.mark.req("KV-4")
def test_a_leased_page_is_never_evicted(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=3 * size)
    pages = talk("ann", *"abc")
    assert tier.put_many(pages) == 3
    with tier.lease(tier.longest("ann", chains_of(pages))) as held:
        assert names_of(held) == chains_of(pages)
        assert tier.stats().leased == 3
        assert tier.put(*talk("ann", "X")[0]) is False
        with tier.lease(held[:1]):
            pass
        assert tier.put(*talk("bob", "X")[0]) is False
        assert all(not isinstance(tier.read(info), Refused) for info in held)
    stats = tier.stats()
    assert (stats.unroomed, stats.leased, stats.evicted) == (2, 0, 0)
    assert tier.put(*talk("ann", "X")[0]) is True


def test_a_lease_gives_what_is_still_there(make: Make) -> None:
    tier = make()
    pages = talk("ann", *"abc")
    tier.put_many(pages)
    infos = tier.longest("ann", chains_of(pages))
    tier.drop_domain("ann")
    tier.put_many(pages[:1] + pages[2:])
    with tier.lease(infos) as held:
        assert held == infos[:1]
    with pytest.raises(ZeroDivisionError), tier.lease(held):
        raise ZeroDivisionError
    assert tier.stats().leased == 0


def test_a_page_never_evicts_what_it_stands_on(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=3 * size)
    pages = talk("ann", *"abcde")
    assert tier.put_many(pages) == 3
    assert names_of(tier.longest("ann", chains_of(pages))) == chains_of(pages)[:3]
    assert tier.stats().unroomed == 1


def test_a_page_larger_than_the_budget_evicts_nobody(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=2 * size)
    assert tier.put(*talk("ann", "a")[0])
    page, _ = talk("ann", "b")[0]
    assert tier.put(page, rows_of(page, full=3 * size)) is False
    assert tier.stats().pages == 1


@pytest.mark.req("KV-4")
def test_one_domain_cannot_fill_the_budget(make: Make) -> None:
    size = cost(make)
    tier = make(budget_bytes=6 * size, domain_budget_bytes=2 * size)
    bob = talk("bob", *"ab")
    assert tier.put_many(bob) == 2
    for name in "abcdefgh":
        assert tier.put(*talk("ann", name)[0])
    assert len(tier.longest("bob", chains_of(bob))) == 2
    assert tier.stats().evicted == 6


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


def run(tier: PageTier, random: Random, budget_bytes: int, steps: int) -> None:
    """Random use, against an oracle that knows all that was ever put."""
    domains = ("ann", "bob", PUBLIC)
    put: dict[tuple[str, ChainId], PageRows] = {}

    def conversation() -> Pages:
        return talk(random.choice(domains), *random.choices("abc", k=random.randint(1, 6)))

    for _ in range(steps):
        pages = conversation()
        domain, chains = pages[0][0].domain, chains_of(pages)
        match random.randrange(8):
            case 0:
                assert tier.drop_domain(domain).pages >= 0
                assert len(tier.longest(domain, chains)) == 0 or domain != PUBLIC
                for key in [key for key in put if key[0] == domain]:
                    del put[key]
            case 1 | 2 | 3 | 4:
                have = len(tier.longest(domain, chains))
                kept = tier.put_many(pages[have:])
                put.update({(domain, page.chain): rows for page, rows in pages})
                found = tier.longest(domain, chains)
                # Evicting never took what was just put, nor what it stands on.
                assert len(found) >= have + kept
            case _:
                with tier.lease(tier.longest(domain, chains)) as held:
                    tier.put_many(conversation())
                    # By chain: a page may meanwhile be had from the public domain as well.
                    found = tier.longest(domain, chains)
                    assert names_of(found)[: len(held)] == names_of(held)
                    for info in held:
                        rows = tier.read(info, random.choice((FULL, BOTH)))
                        assert isinstance(rows, PageRows)
                        right = put.get((info.page.domain, info.page.chain), rows_of(info.page))
                        assert rows.full == right.full
                        assert rows.sliding in (b"", right.sliding)
        assert tier.stats().bytes <= budget_bytes
        assert tier.stats().leased == 0
    assert tier.stats().refused == {}


@pytest.mark.req("KV-3", "KV-4", "KV-5")
@settings(max_examples=settings().max_examples // 4)
@given(st.sampled_from(KINDS), st.integers(0, 2**63), st.integers(1, 20))
def test_random_use_against_an_oracle(kind: str, seed: int, room: int) -> None:
    budget_bytes = room * 560
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        tier = tier_of(kind, Path(root), TestClock(), budget_bytes, None)
        try:
            run(tier, Random(seed), budget_bytes, 30)
        finally:
            tier.close()
