"""Chains: every step refuses on its own, in one order, and nothing that is changed verifies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.capability import Capability, attenuate, decode_link
from protocol.caveats import ServiceCaveat
from protocol.chain import verify_chain
from protocol.errors import CapabilityError
from protocol.ids import CapabilityId
from protocol.invocation import invoke
from protocol.limits import CHAIN_LINKS_MAX
from protocol.resource import ALL, ResourceKind, Right
from protocol.signing import Signer
from tests.chains import (
    ANCHOR,
    ANCHORS,
    DOMAIN,
    NOW,
    PRINCIPAL,
    RIGHTS,
    ROOM_A,
    SECOND,
    STRANGER,
    Chain,
    forged,
    named,
    namespace,
    nobody,
    nonce,
    principal_chain,
    refused_at,
    three_links,
    turn_chain,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "authority.json"


def with_leaf(signer: Signer, **changes: Any) -> Chain:
    """A turn chain whose last link is changed and signed again by its holder."""
    *above, last = turn_chain("assembler")
    return (*above, forged(last, signer, **changes))


def test_a_chain_gives_its_leafs_handle() -> None:
    handle = verify_chain(three_links(), ANCHORS, NOW, nobody)
    links = [decode_link(data) for data in three_links()]
    assert handle.lineage == tuple(link.id for link in links)
    assert (handle.root, handle.principal) == (ANCHOR.public, PRINCIPAL.public)
    assert handle.audience == ROOM_A.public
    assert handle.rights == frozenset(RIGHTS)
    assert handle.scope.services == frozenset(("assembler",))
    assert (handle.nbf_ns, handle.exp_ns) == (NOW - 1800 * SECOND, NOW + 60 * SECOND)


@pytest.mark.req("AUT-1")
def test_golden_chain_and_invocation() -> None:
    """Keys, payload bytes, ids and signatures as they were frozen: the format has not moved."""
    golden = json.loads(GOLDEN.read_text())
    chain = three_links()
    assert [link.hex() for link in chain] == golden["chain"]
    handle = verify_chain(chain, ANCHORS, NOW, nobody)
    assert [str(link) for link in handle.lineage] == golden["ids"]
    invocation = invoke(
        ROOM_A,
        cap=handle.leaf,
        service="assembler",
        op="assemble",
        args=b"arguments",
        ts_ns=NOW,
        nonce=nonce(9),
    )
    assert invocation.hex() == golden["invocation"]


@pytest.mark.req("AUT-1")
def test_step_size() -> None:
    assert refused_at([bytes(4097)] * 8) == "size"
    assert refused_at(principal_chain() * 10_000) == "size"


@pytest.mark.req("AUT-1")
def test_step_decode() -> None:
    (root,) = principal_chain()
    for link in (b"", b"\0", root + b"\0", root[:-1], bytes(4097), b"\x82\x40\x40"):
        assert refused_at([link]) == "decode"
    assert refused_at([b""] * 10_000) == "decode"


@pytest.mark.req("AUT-1")
def test_step_length() -> None:
    assert refused_at(()) == "length"
    assert refused_at(principal_chain() * (CHAIN_LINKS_MAX + 1)) == "length"
    chain = principal_chain()
    for number in range(CHAIN_LINKS_MAX - 1):
        chain = attenuate(chain, PRINCIPAL, audience=PRINCIPAL.public, nonce=nonce(number))
    assert len(verify_chain(chain, ANCHORS, NOW, nobody).lineage) == CHAIN_LINKS_MAX


@pytest.mark.req("AUT-1")
def test_step_anchor() -> None:
    assert refused_at(turn_chain("a")[1:]) == "anchor"
    assert refused_at(principal_chain(), anchors=frozenset((STRANGER.public,))) == "anchor"
    assert refused_at(principal_chain(), anchors=()) == "anchor"
    (root,) = principal_chain()
    # The anchor's own word about another's authority, and a root that has lost its parent.
    assert refused_at([forged(root, ANCHOR, sub=STRANGER.public)]) == "anchor"
    assert refused_at([forged(root, ANCHOR, parent=CapabilityId(bytes(32)))]) == "anchor"
    assert refused_at([forged(root, STRANGER, iss=STRANGER.public)]) == "anchor"


@pytest.mark.req("AUT-1")
def test_step_signature() -> None:
    (root,) = principal_chain()
    assert refused_at([forged(root, STRANGER)]) == "signature"
    assert refused_at(with_leaf(STRANGER)) == "signature"
    # A middle link is verified too, not only the ends.
    first, middle, last = three_links()
    assert refused_at((first, forged(middle, STRANGER), last)) == "signature"
    # An invocation's signature is none for a capability with the same bytes.
    link = decode_link(root)
    other = ANCHOR.sign(b"huginn.inv/1\0" + link.payload)
    assert refused_at([root.replace(link.signature, other)]) == "signature"


@pytest.mark.req("AUT-1")
def test_step_key() -> None:
    assert refused_at(with_leaf(PRINCIPAL, aud=bytes(32))) == "key"
    mixed_order = bytes.fromhex("cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d")
    assert refused_at(with_leaf(PRINCIPAL, aud=mixed_order)) == "key"


@pytest.mark.req("AUT-1")
def test_step_alignment() -> None:
    # Signed by a stranger who says so: the link is sound, but not the principal's.
    assert refused_at(with_leaf(STRANGER, iss=STRANGER.public)) == "alignment"
    first, middle, last = three_links()
    for chain in ((first, last), (first, middle, middle, last), (first, first, middle)):
        assert refused_at(chain) in ("alignment", "parent")


@pytest.mark.req("AUT-1")
def test_step_subject() -> None:
    assert refused_at(with_leaf(PRINCIPAL, sub=STRANGER.public)) == "subject"


@pytest.mark.req("AUT-1")
def test_step_parent() -> None:
    assert refused_at(with_leaf(PRINCIPAL, parent=CapabilityId(bytes(32)))) == "parent"
    assert refused_at(with_leaf(PRINCIPAL, parent=None)) == "parent"
    # Spliced under another grant to the same key, wider than the one it was made from.
    (wider,) = principal_chain(resource=ALL, nonce=nonce(99))
    assert refused_at((wider, turn_chain("a")[1])) == "parent"


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("rights", {"rights": tuple(sorted((*RIGHTS, Right.ERASE)))}),
        ("resource", {"res": namespace("team")}),
        ("resource", {"res": namespace("team/alice-2")}),
        ("resource", {"res": ALL}),
        ("resource", {"res": named(ResourceKind.PROFILE, "small")}),
        ("caveats", {"caveats": ()}),
        ("caveats", {"caveats": (DOMAIN, ServiceCaveat(names=("assembler",)))}),
        ("times", {"exp_ns": NOW + 1800 * SECOND + 1}),
        ("times", {"nbf_ns": NOW - 1800 * SECOND - 1}),
        ("depth", {"depth_left": 7}),
    ],
)
def test_step_attenuation(step: str, changes: dict[str, Any]) -> None:
    assert refused_at(with_leaf(PRINCIPAL, **changes)) == f"attenuation.{step}"


@pytest.mark.req("AUT-1")
def test_step_time() -> None:
    leaf = decode_link(turn_chain("a")[-1]).capability
    for now_ns, holds in (
        (leaf.nbf_ns - 1, False),
        (leaf.nbf_ns, True),
        (leaf.exp_ns - 1, True),
        (leaf.exp_ns, False),
        (0, False),
        (2**63 - 1, False),
    ):
        if holds:
            verify_chain(turn_chain("a"), ANCHORS, now_ns, nobody)
        else:
            assert refused_at(turn_chain("a"), now_ns=now_ns) == "time"


@pytest.mark.req("AUT-1")
def test_step_revocation_looks_at_every_ancestor() -> None:
    for link in [decode_link(data) for data in three_links()]:
        revoked = frozenset((link.id,))
        step = refused_at(three_links(), is_revoked=lambda i, _, revoked=revoked: i in revoked)
        assert step == "revocation"
    assert refused_at(three_links(), is_revoked=lambda _, c: c.iss == ANCHOR.public) == (
        "revocation"
    )
    assert refused_at(three_links(), is_revoked=lambda _, c: c.iss == PRINCIPAL.public) == (
        "revocation"
    )
    verify_chain(three_links(), ANCHORS, NOW, lambda _, c: c.iss == STRANGER.public)


def test_a_revocation_list_that_cannot_be_read_refuses() -> None:
    def broken(_id: CapabilityId, _capability: Capability) -> bool:
        raise OSError("no list")

    with pytest.raises(OSError, match="no list"):
        verify_chain(principal_chain(), ANCHORS, NOW, broken)


@pytest.mark.req("AUT-1")
def test_steps_come_in_order() -> None:
    """Each forgery also breaks every later step; the earliest is the one that answers."""
    *above, last = turn_chain("a")
    expired_widened = {"res": ALL, "parent": None, "nbf_ns": 1, "exp_ns": 2}
    everything = {"is_revoked": lambda _i, _c: True, "now_ns": 0}
    assert refused_at((*above, last[:-1]), anchors=(), **everything) == "decode"
    assert refused_at((*above, forged(last, STRANGER)), anchors=(), **everything) == "anchor"
    forgery = forged(last, STRANGER, **expired_widened)
    assert refused_at((*above, forgery), **everything) == "signature"
    forgery = forged(last, PRINCIPAL, aud=bytes(32), **expired_widened)
    assert refused_at((*above, forgery), **everything) == "key"
    forgery = forged(last, PRINCIPAL, **expired_widened)
    assert refused_at((*above, forgery), **everything) == "parent"
    forgery = forged(last, PRINCIPAL, res=ALL, nbf_ns=1, exp_ns=2)
    assert refused_at((*above, forgery), **everything) == "attenuation.resource"
    assert refused_at((*above, last), **everything) == "time"
    assert refused_at((*above, last), is_revoked=everything["is_revoked"]) == "revocation"


@pytest.mark.req("AUT-1")
def test_truncation_gives_a_handle_that_only_its_own_audience_can_use() -> None:
    handle = verify_chain(three_links()[:2], ANCHORS, NOW, nobody)
    assert handle.audience == PRINCIPAL.public != ROOM_A.public


@pytest.mark.req("AUT-1")
def test_every_changed_byte_is_refused() -> None:
    chain = three_links()
    for which, link in enumerate(chain):
        for at in range(len(link)):
            changed = bytearray(link)
            changed[at] ^= 1 << (at % 8)
            with pytest.raises(CapabilityError):
                verify_chain(
                    (*chain[:which], bytes(changed), *chain[which + 1 :]), ANCHORS, NOW, nobody
                )


def test_the_tools_forge_what_they_say() -> None:
    """Negative control: the forged leaf with nothing changed still verifies."""
    assert with_leaf(PRINCIPAL) == turn_chain("assembler")
    verify_chain(with_leaf(PRINCIPAL), ANCHORS, NOW, nobody)
    assert decode_link(with_leaf(PRINCIPAL, nonce=nonce(5))[1]).capability.nonce == nonce(5)
