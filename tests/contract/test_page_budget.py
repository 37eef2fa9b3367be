"""The contract of `store.pages.tier` where room is short: budgets and leases hold throughout."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ids import ChainId
from protocol.page import PageRows
from store.pages.tier import BOTH, FULL, PUBLIC, PageTier, Refused
from tests.page_samples import (
    KINDS,
    Make,
    Pages,
    TestClock,
    chains_of,
    cost,
    names_of,
    one,
    rows_of,
    talk,
    tier_of,
)
from tests.stores import FAST


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
