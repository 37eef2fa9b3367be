"""Handles shown in place of a key: for this gateway, of a principal that has a key here."""

from __future__ import annotations

from typing import Any

import pytest

from actors.gateway.keys import ApiKeys, KeyRow, mint_key
from actors.gateway.presented import PresentedHandles
from protocol.capability import attenuate, decode_link
from protocol.caveats import NamespaceCaveat
from protocol.handle_text import encode_handle
from protocol.resource import Right
from store.memory_tables import MemoryTables
from tests.chains import (
    ANCHORS,
    NOW,
    PRINCIPAL,
    ROOM_A,
    SECOND,
    STRANGER,
    forged,
    namespace,
    nonce,
    principal_chain,
)

ROW = KeyRow(
    v=1,
    principal="alice",
    chain=list(principal_chain()),
    namespace="team/alice",
    domain="alice",
    created_s=1,
    admin_chain=list(principal_chain()),
)


def handles() -> PresentedHandles:
    keys = ApiKeys(MemoryTables().keyed("keys"))
    keys.add(mint_key(bytes(20)), ROW)
    return PresentedHandles(ROOM_A, ANCHORS, keys)


def given(**changes: Any) -> tuple[bytes, ...]:
    fields: dict[str, Any] = {"audience": ROOM_A.public, "nonce": nonce(9), **changes}
    return attenuate(principal_chain(), PRINCIPAL, **fields)


@pytest.mark.req("AUT-1")
def test_a_handle_is_its_principals_as_far_as_it_goes() -> None:
    chain = given(rights=[Right.READ], resource=namespace("team/alice/part"))
    found = handles().find(encode_handle(chain), NOW)
    assert found is not None
    assert (found.row.principal, found.row.domain) == ("alice", "alice")
    assert (found.row.chain, found.row.namespace) == (list(chain), "team/alice/part")
    assert (found.row.admin_chain, found.signer) == (None, ROOM_A)
    # A renewed grant of the same principal is as good as the one that the key has.
    renewed = attenuate(
        principal_chain(nonce=nonce(77)), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(9)
    )
    assert handles().find(encode_handle(renewed), NOW) is not None


def test_it_works_where_its_caveats_leave_it() -> None:
    one = given(caveats=[NamespaceCaveat(paths=("team/alice/part",))])
    two = given(caveats=[NamespaceCaveat(paths=("team/alice/a", "team/alice/b"))])
    places = []
    for chain in (given(), one, two):
        found = handles().find(encode_handle(chain), NOW)
        assert found is not None
        places.append(found.row.namespace)
    assert places == ["team/alice", "team/alice/part", "team/alice"]


@pytest.mark.req("AUT-1", "AUT-4")
def test_anything_else_is_nobody() -> None:
    shown = handles()
    good = given()
    assert shown.find(encode_handle(good), NOW) is not None
    wrong = {
        "for another key": given(audience=STRANGER.public),
        "the giver's own": principal_chain(),
        "forged": (*good[:-1], forged(good[-1], STRANGER)),
        "wider": (*good[:-1], forged(good[-1], PRINCIPAL, rights=(Right.GRANT,))),
        "of a principal without a key": attenuate(
            principal_chain(audience=STRANGER.public),
            STRANGER,
            audience=ROOM_A.public,
            nonce=nonce(9),
        ),
        "ended": given(exp_ns=NOW),
    }
    for name, chain in wrong.items():
        assert shown.find(encode_handle(chain), NOW) is None, name
    for text in ("", "hgh-", "hgh-x", "hg-abc", encode_handle(good)[:-1]):
        assert shown.find(text, NOW) is None
    assert shown.find(encode_handle(good), NOW + 1800 * SECOND) is None
    shown.is_revoked = lambda link, _: link == decode_link(good[-1]).id
    assert shown.find(encode_handle(good), NOW) is None


def test_a_handle_is_told_from_a_key() -> None:
    assert PresentedHandles.is_one(encode_handle(given()))
    assert not PresentedHandles.is_one(mint_key(bytes(20)))
