"""The accounting of pages, against an oracle that sorts where the catalog keeps order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.pages.catalog import Catalog, Entry, Key, key_of
from store.pages.header import PageHeader
from store.pages.tier import PUBLIC, header_of
from tests.page_samples import chains_of, talk

SIZE = 100


def headers(domain: str, *names: object) -> list[PageHeader]:
    return [header_of(page, rows) for page, rows in talk(domain, *names)]


def filled(budget: int, *groups: list[PageHeader]) -> Catalog:
    catalog = Catalog(budget, None)
    for group in groups:
        for header in group:
            catalog.add(header, SIZE, 0)
    return catalog


def keys(*found: PageHeader) -> list[Key]:
    return [key_of(header) for header in found]


def test_sums_follow_every_change() -> None:
    ann, bob = headers("ann", *"abc"), headers("bob", *"ab")
    catalog = filled(10_000, ann, bob)
    assert (len(catalog), catalog.bytes) == (5, 500)
    catalog.add(ann[1], 70, 0)
    assert (len(catalog), catalog.bytes) == (5, 470)
    entry = catalog.remove(key_of(ann[1]))
    assert entry is not None
    assert entry.header == ann[1]
    assert catalog.remove(key_of(ann[1])) is None
    assert [entry.header for entry in catalog.drop(bob[0].domain)] == bob[::-1]
    assert catalog.drop(bob[0].domain) == []
    assert (len(catalog), catalog.bytes) == (2, 200)
    assert sorted(key_of(entry.header) for entry in catalog.entries()) == sorted(
        keys(ann[0], ann[2])
    )
    assert catalog.get(key_of(bob[0])) is None


def test_the_longest_prefix_has_neither_holes_nor_false_joints() -> None:
    chain = headers("ann", *"abcd")
    chains = chains_of(talk("ann", *"abcd"))
    catalog = filled(10_000, chain)
    assert catalog.longest(chain[0].domain, chains) == chain
    assert catalog.longest(chain[0].domain, chains[1:]) == []
    assert catalog.longest(chain[0].domain, [*chains[:2], chains[3]]) == chain[:2]
    shifted = talk("ann", *"abcd", tokens=25)
    catalog.add(header_of(*shifted[2]), SIZE, 0)
    assert catalog.longest(chain[0].domain, chains) == chain[:2]


def test_victims_are_the_least_recently_used_leaves_first() -> None:
    old, new = headers("ann", *"abc"), headers("ann", *"xy")
    catalog = filled(500, old, new)
    assert catalog.victims(None, 0) == []
    assert catalog.victims(None, 1) == keys(old[2])
    assert catalog.victims(None, 250) == keys(old[2], old[1], old[0])
    assert catalog.victims(None, 500) == keys(old[2], old[1], old[0], new[1], new[0])
    assert catalog.victims(None, 501) is None
    assert [e.header for e in catalog.use(keys(old[1]), 0)] == [old[1], old[0]]
    assert catalog.victims(None, 300) == keys(old[2], new[1], new[0])


def test_a_clock_that_steps_back_makes_nothing_old() -> None:
    a, b = headers("ann", "a") + headers("ann", "b")
    catalog = Catalog(200, None)
    catalog.add(a, SIZE, 1_000)
    catalog.add(b, SIZE, 10)
    assert catalog.victims(None, SIZE) == keys(a)


def test_leases_and_ancestors_are_no_victims() -> None:
    chain = headers("ann", *"abcd")
    catalog = filled(300, chain[:3])
    catalog.lease(keys(chain[2]))
    catalog.lease(keys(chain[2]))
    catalog.release(keys(chain[2]))
    assert catalog.leased == 1
    assert catalog.victims(None, SIZE) == keys(chain[1])
    catalog.release(keys(chain[2]))
    assert catalog.leased == 0
    assert catalog.victims(None, SIZE) == keys(chain[2])
    assert catalog.victims(chain[3], SIZE) is None
    # Also those that lie in the public domain.
    mixed = filled(200, headers(PUBLIC, *"ab"))
    assert mixed.victims(headers("ann", *"abc")[2], SIZE) is None
    assert mixed.victims(headers("ann", *"xyz")[2], SIZE) == keys(headers(PUBLIC, *"ab")[1])


def test_a_domain_pays_for_itself_first() -> None:
    ann, bob = headers("ann", *"ab"), headers("bob", *"ab")
    catalog = Catalog(1_000, 200)
    for header in (*ann, *bob):
        catalog.add(header, SIZE, 0)
    (more,) = headers("bob", "x")
    assert catalog.victims(more, SIZE) == keys(bob[1])
    assert catalog.victims(more, 201) is None
    (other,) = headers("eve", "x")
    assert catalog.victims(other, SIZE) == []


def test_what_was_written_down_coarsely_is_put_in_order() -> None:
    chain = headers("ann", *"abc")
    other = headers("ann", "x")
    catalog = Catalog(400, None)
    catalog.load(
        [
            Entry(header, SIZE, used_ns)
            for header, used_ns in zip((*chain, *other), (5, 0, 9, 7), strict=True)
        ]
    )
    assert catalog.victims(None, 400) == keys(other[0], chain[2], chain[1], chain[0])
    # And what comes next is newer than all of it, whatever the clock says.
    catalog.add(headers("ann", "y")[0], SIZE, 0)
    victims = catalog.victims(None, 400)
    assert victims is not None
    assert victims[-1] == key_of(headers("ann", "y")[0])


@pytest.mark.req("KV-4")
@given(st.integers(0, 2**63))
def test_random_use_against_sorting(seed: int) -> None:
    random = Random(seed)
    catalog = Catalog(10**9, None)
    used: dict[Key, tuple[int, PageHeader]] = {}
    for turn in range(60):
        found = headers(random.choice(("ann", "bob")), *random.choices("abc", k=3))
        count = random.randint(1, 3)
        if random.random() < 0.2:
            catalog.remove(key_of(found[2]))
            used.pop(key_of(found[2]), None)
        else:
            for header in found[:count]:
                if catalog.get(key_of(header)) is None:
                    catalog.add(header, SIZE, 0)
            catalog.use(keys(found[count - 1]), 0)
            used.update({key_of(header): (turn, header) for header in found[:count]})
        assert catalog.bytes == SIZE * len(used) == SIZE * len(catalog)
    # Least recently used first; a page before those that it stands on.
    order = sorted(used, key=lambda key: (used[key][0], -used[key][1].start))
    catalog.budget_bytes = catalog.bytes
    wanted = random.randint(0, len(used))
    assert catalog.victims(None, wanted * SIZE) == order[:wanted]
