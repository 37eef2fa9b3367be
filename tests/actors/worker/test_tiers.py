"""Tiers: one prefix out of two tiers, page by page, and what becomes of bad ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.errors import StoreFault
from protocol.ids import PageId
from protocol.page import page_digest
from store.pages.memory import MemoryPageTier
from store.pages.tier import PageTier
from tests.page_samples import Pages, TestClock, chains_of, disk, talk

TOKENS = 24
WINDOW = 30


def sliding_start(tokens: int) -> int:
    return max(0, tokens - WINDOW)


def tier(pages: Pages | None = None, *, budget_bytes: int = 2**20) -> MemoryPageTier:
    made = MemoryPageTier(TestClock(), budget_bytes)
    for page, rows in pages or []:
        assert made.put(page, rows)
    return made


def places(
    host: PageTier, disk: PageTier, pages: Pages, domain: str = "ann"
) -> list[tuple[str, ...]]:
    return [held.tiers for held in Tiers(host, disk).longest(domain, chains_of(pages))]


@pytest.mark.req("KV-5")
@given(in_host=st.sets(st.integers(0, 5)), on_disk=st.sets(st.integers(0, 5)))
def test_the_longest_prefix_is_put_together_from_both(in_host: set[int], on_disk: set[int]) -> None:
    pages = talk("ann", *range(6))
    host, disk = tier([pages[k] for k in in_host]), tier([pages[k] for k in on_disk])
    wanted = [
        (*["host"] * (k in in_host), *["disk"] * (k in on_disk))
        for k in itertools.takewhile(lambda k: k in in_host | on_disk, range(6))
    ]
    assert places(host, disk, pages) == wanted
    tiers = Tiers(host, disk)
    fetched = tiers.fetch(tiers.longest("ann", chains_of(pages)), sliding_start)
    assert fetched.tokens == TOKENS * len(wanted) == sum(fetched.tier_to_tokens.values())
    assert fetched.tier_to_tokens.get("host", 0) == TOKENS * sum(w[0] == "host" for w in wanted)
    assert fetched.refused == []
    for (page, rows), info, found in zip(pages, fetched.infos, fetched.rows, strict=False):
        assert info.page == page
        assert found.full == rows.full
        # Older sliding rows than the window's are not even read.
        needed = page.start + page.tokens > sliding_start(fetched.tokens)
        assert found.sliding == (rows.sliding if needed else b"")


@pytest.mark.req("AUT-5", "KV-5")
@given(
    own=st.sets(st.integers(0, 5)),
    shared=st.sets(st.integers(0, 5)),
    public=st.integers(0, 6),
)
def test_what_is_public_of_a_prompt_is_looked_for_in_both_domains(
    own: set[int], shared: set[int], public: int
) -> None:
    mine, everybodys = talk("ann", *range(6)), talk("public", *range(6))
    host = tier([mine[k] for k in own])
    disk = tier([everybodys[k] for k in shared])
    found = Tiers(host, disk).longest("ann", chains_of(mine), public)
    usable = [k in own or (k in shared and k < public) for k in range(6)]
    assert len(found) == len(list(itertools.takewhile(bool, usable)))
    for k, held in enumerate(found):
        is_public = k in shared and k < public
        assert held.info.page.domain == ("public" if is_public else "ann")
        assert held.tiers == (("disk",) if is_public else ("host",))


@pytest.mark.req("AUT-5", "AUT-8")
def test_a_domain_is_dropped_from_memory_queue_and_disk() -> None:
    host, disk = tier(), tier()
    writer = PageWriter(disk, host)
    tiers = Tiers(host, disk, writer)
    for page, rows in [*talk("public", 1, 2), *talk("ann", 1, 2)]:
        tiers.keep(page, rows)
    writer.flush()
    for page, rows in [*talk("public", 3, 4), *talk("ann", 3, 4)]:
        tiers.keep(page, rows)
    tiers.drop("public")
    writer.flush()
    for kept in (host, disk):
        assert kept.stats().pages == 4
        for names in ((1, 2), (3, 4)):
            assert kept.find("public", chains_of(talk("public", *names))) == []
            assert len(kept.find("ann", chains_of(talk("ann", *names)))) == 2
    tiers.drop("nobody")


@pytest.mark.req("AUT-5", "AUT-9")
def test_domains_are_apart_in_both_tiers() -> None:
    pages = talk("ann", 1, 2)
    assert places(tier(pages), tier(pages), pages, "bob") == []
    public = talk("public", 1, 2)
    assert places(tier(public), tier(public), pages, "ann") == []


@pytest.mark.req("KV-3")
def test_a_page_that_one_tier_refuses_comes_from_the_other() -> None:
    pages = talk("ann", 1, 2, 3)
    host, disk = tier(pages), tier(pages)
    tiers = Tiers(host, disk)
    held = tiers.longest("ann", chains_of(pages))
    host.spoil(held[1].info)
    fetched = tiers.fetch(held, sliding_start)
    assert fetched.tokens == 3 * TOKENS
    assert fetched.tier_to_tokens == {"host": 2 * TOKENS, "disk": TOKENS}
    assert fetched.refused == ["digest"]


@pytest.mark.req("KV-3", "KV-7")
def test_a_page_that_none_gives_ends_the_prefix_and_older_sliding_rows_are_read() -> None:
    pages = talk("ann", 1, 2, 3, 4)
    host = tier(pages)
    tiers = Tiers(host)
    held = tiers.longest("ann", chains_of(pages))
    host.spoil(held[2].info)
    fetched = tiers.fetch(held, sliding_start)
    assert fetched.tokens == 2 * TOKENS
    assert [rows.sliding for rows in fetched.rows] == [rows.sliding for _, rows in pages[:2]]
    assert fetched.refused == ["digest"]
    assert tiers.stats()["host"]["refused"] == 1
    again = tiers.longest("ann", chains_of(pages))
    assert len(again) == 2, "it is not kept any longer"


@pytest.mark.req("KV-3")
def test_nothing_is_left_when_the_first_page_is_bad() -> None:
    pages = talk("ann", 1, 2)
    host = tier(pages)
    tiers = Tiers(host)
    held = tiers.longest("ann", chains_of(pages))
    host.spoil(held[0].info)
    fetched = tiers.fetch(held, sliding_start)
    assert (fetched.tokens, fetched.rows, fetched.refused) == (0, [], ["digest"])


def test_a_page_with_other_rows_on_disk_is_no_substitute() -> None:
    pages = talk("ann", 1)
    ((page, rows),) = pages
    other = [(page, type(rows)(rows.full[::-1], rows.sliding))]
    assert places(tier(pages), tier(other), pages) == [("host",)]


@pytest.mark.req("KV-4")
def test_pages_that_are_read_are_not_evicted_meanwhile(tmp_path: Path) -> None:
    pages = talk("ann", 1, 2)
    store = disk(tmp_path / "pages")
    assert store.put_many(pages) == 2
    host = tier()
    tiers = Tiers(host, store)
    leased = []
    real = store.read

    def read(*args: object) -> object:
        leased.append(store.stats().leased)
        return real(*args)  # type: ignore[arg-type]

    store.read = read  # type: ignore[assignment, method-assign]
    assert tiers.fetch(tiers.longest("ann", chains_of(pages)), sliding_start).tokens == 2 * TOKENS
    assert leased == [2, 2]
    assert store.stats().leased == 0
    tiers.close()
    tiers.close()


@pytest.mark.req("KV-4", "KV-8")
def test_every_tier_has_its_counters() -> None:
    host, disk = tier(), tier(budget_bytes=300)
    writer = PageWriter(disk, host)
    tiers = Tiers(host, disk, writer)
    for page, rows in talk("ann", 1, 2, 3):
        tiers.keep(page, rows)
    assert tiers.stats()["disk"]["queued"] == 3
    writer.flush()
    found = tiers.stats()
    assert found["host"]["pages"] == 3
    assert found["host"]["bytes"] == 3 * 144
    assert found["disk"]["pages"] == 2
    assert found["disk"]["unroomed"] == found["disk"]["dropped"] == 1
    assert found["disk"]["queued"] == 0


def test_the_digest_is_known_without_reading() -> None:
    pages = talk("ann", 1)
    (held,) = Tiers(tier(pages)).longest("ann", chains_of(pages))
    assert isinstance(held.info.digest, PageId)
    assert held.stop == TOKENS


@pytest.mark.req("DRV-6", "KV-7")
def test_a_page_is_held_where_its_bytes_are() -> None:
    (page, rows), *_ = talk("ann", 1, 2)
    digest = page_digest(rows)
    for host, other in ((tier([(page, rows)]), tier()), (tier(), tier([(page, rows)]))):
        tiers = Tiers(host, other)
        assert tiers.holds(["ann"], page.chain, digest)
        assert not tiers.holds(["bob"], page.chain, digest)
        assert tiers.holds(["bob", "ann"], page.chain, digest)
        assert not tiers.holds(["ann"], page.chain, PageId.of(b"another"))
        assert not tiers.holds(["ann"], chains_of(talk("ann", 3))[0], digest)
    # A page that reads back otherwise is not held, and another tier may have it.
    spoilt = tier([(page, rows)])
    (info,) = spoilt.find("ann", [page.chain])
    spoilt.spoil(info)
    assert not Tiers(spoilt, tier()).holds(["ann"], page.chain, digest)
    spoilt = tier([(page, rows)])
    spoilt.spoil(info)
    assert Tiers(spoilt, tier([(page, rows)])).holds(["ann"], page.chain, digest)


@pytest.mark.req("AUT-8")
def test_a_domain_is_erased_with_the_key_of_its_pages() -> None:
    destroyed: list[str] = []
    host, disk = tier(), tier()
    tiers = Tiers(host, disk, PageWriter(disk, host), destroy_key=destroyed.append)
    for page, rows in talk("ann", 1, 2):
        tiers.keep(page, rows)
    tiers.erase("ann")
    assert host.stats().pages == disk.stats().pages == 0
    # What is public is sealed with no key.
    tiers.erase("public")
    assert destroyed == ["ann"]


@pytest.mark.req("AUT-8")
def test_an_erasure_does_not_seem_done_where_pages_cannot_be_reached() -> None:
    destroyed: list[str] = []
    tiers = Tiers(tier(), destroy_key=destroyed.append, unopened="the directory is read-only")
    with pytest.raises(StoreFault, match="cannot be reached: the directory is read-only"):
        tiers.erase("ann")
    assert destroyed == []
