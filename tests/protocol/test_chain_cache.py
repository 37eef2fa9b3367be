"""The cache of verified chains: a verdict is remembered, and never longer than it holds."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.capability import decode_link
from protocol.chain import ChainCache, verify_chain
from protocol.errors import CapabilityError
from tests.chains import (
    ANCHOR,
    ANCHORS,
    NOW,
    SECOND,
    Chain,
    nobody,
    nonce,
    principal_chain,
    three_links,
)


def verified(cache: ChainCache, chain: Chain, **changes: Any) -> object:
    return cache.verify(chain, **{"now_ns": NOW, "epoch": 1, "is_revoked": nobody, **changes})


def test_the_cache_answers_as_verification_does() -> None:
    cache = ChainCache(ANCHORS)
    first = verified(cache, three_links())
    assert first == verify_chain(three_links(), ANCHORS, NOW, nobody)
    assert verified(cache, three_links()) is first
    assert len(cache) == 1


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("time", {"now_ns": NOW + 60 * SECOND}),
        ("time", {"now_ns": 0}),
        ("revocation", {"is_revoked": lambda _i, _c: True}),
        ("revocation", {"is_revoked": lambda _i, c: c.iss == ANCHOR.public}),
        ("time", {"now_ns": NOW + 60 * SECOND, "epoch": 2}),
    ],
)
def test_a_cached_chain_is_refused_when_it_no_longer_holds(
    step: str, changes: dict[str, Any]
) -> None:
    cache = ChainCache(ANCHORS)
    verified(cache, three_links())
    with pytest.raises(CapabilityError) as caught:
        verified(cache, three_links(), **changes)
    assert caught.value.step == step


def test_the_cache_knows_a_chain_by_all_its_bytes() -> None:
    cache = ChainCache(ANCHORS)
    chain = three_links()
    verified(cache, chain)
    link = decode_link(chain[1])
    other = chain[1].replace(link.signature, bytes(64))
    for changed in ((*chain[:1], other, *chain[2:]), (b"".join(chain),), chain[1:], ()):
        with pytest.raises(CapabilityError):
            verified(cache, changed)
    verified(cache, chain[:2])
    assert len(cache) == 2


def test_the_cache_is_bounded_and_drops_the_least_recently_used() -> None:
    cache = ChainCache(ANCHORS, entries_max=2)
    a, b, c = (principal_chain(nonce=nonce(number)) for number in range(3))
    first = verified(cache, a)
    verified(cache, b)
    verified(cache, a)
    verified(cache, c)
    assert len(cache) == 2
    assert verified(cache, a) is first


def test_a_new_epoch_forgets_every_verdict() -> None:
    cache = ChainCache(ANCHORS)
    first = verified(cache, three_links())
    verified(cache, principal_chain())
    again = verified(cache, three_links(), epoch=2)
    assert again == first
    assert again is not first
    assert len(cache) == 1


def test_refusals_are_not_remembered() -> None:
    cache = ChainCache(())
    with pytest.raises(CapabilityError, match="anchor"):
        verified(cache, principal_chain())
    assert len(cache) == 0
