"""Chains: every step refuses on its own, random chains verify, and nothing wider does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.capability import Capability, attenuate, decode_link, issue
from protocol.caveats import (
    Caveat,
    DomainCaveat,
    NamespaceCaveat,
    OperationCaveat,
    ProfileCaveat,
    ServiceCaveat,
)
from protocol.chain import ChainCache, verify_chain
from protocol.errors import CapabilityError
from protocol.ids import CapabilityId
from protocol.invocation import invoke
from protocol.limits import CHAIN_LINKS_MAX
from protocol.record import encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.chains import (
    ANCHOR,
    ANCHORS,
    DOMAIN,
    NOW,
    PRINCIPAL,
    RIGHTS,
    ROOM_A,
    ROOM_B,
    SECOND,
    STRANGER,
    forged,
    named,
    namespace,
    nobody,
    nonce,
    principal_chain,
    turn_chain,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "authority.json"
Chain = tuple[bytes, ...]


def refused_at(chain: Sequence[bytes], **changes: Any) -> str:
    """The step that refuses `chain`."""
    arguments = {"anchors": ANCHORS, "now_ns": NOW, "is_revoked": nobody, **changes}
    with pytest.raises(CapabilityError) as caught:
        verify_chain(chain, **arguments)
    return caught.value.step


def three_links() -> Chain:
    return attenuate(turn_chain("assembler"), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(3))


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


# Random chains, against a naive evaluator that looks at every link by itself.

SIGNERS = (PRINCIPAL, ROOM_A, ROOM_B, STRANGER)
RESOURCES = (
    ALL,
    *(namespace(path) for path in ("a", "a/b", "a/b/c", "ab", "b")),
    *(named(ResourceKind.PROFILE, name) for name in ("p", "q")),
    *(named(ResourceKind.DOMAIN, name) for name in ("d", "e")),
    named(ResourceKind.SESSION, "s"),
)
CAVEATS: tuple[Caveat, ...] = (
    ServiceCaveat(names=("a",)),
    ServiceCaveat(names=("a", "b")),
    OperationCaveat(names=("x", "y")),
    ProfileCaveat(names=("p",)),
    ProfileCaveat(names=("p", "q")),
    NamespaceCaveat(paths=("a", "b")),
    NamespaceCaveat(paths=("a/b",)),
    DomainCaveat(name="d"),
)
SOME_RIGHTS = st.sets(st.sampled_from(sorted(Right)), min_size=1)


def within(path: str | None, prefix: str | None) -> bool:
    have, want = str(path).split("/"), str(prefix).split("/")
    return have[: len(want)] == want


def naively_excluded(caveat: Caveat, asked: Resource) -> bool:
    match caveat, asked.kind.value:
        case ((ProfileCaveat() | NamespaceCaveat() | DomainCaveat()), "all"):
            return True
        case ProfileCaveat(), "profile":
            return asked.name not in caveat.names
        case DomainCaveat(), "domain":
            return asked.name != caveat.name
        case NamespaceCaveat(), "namespace":
            return not any(within(asked.name, path) for path in caveat.paths)
        case NamespaceCaveat(), "session":
            return True
    return False


def naively_allows(link: Capability, right: Right, asked: Resource) -> bool:
    """Whether one link, by its words alone, allows `right` on `asked`."""
    if right.value not in [held.value for held in link.rights]:
        return False
    if any(naively_excluded(caveat, asked) for caveat in link.caveats):
        return False
    match link.res.kind.value, asked.kind.value:
        case "all", _:
            return True
        case "namespace", "namespace":
            return within(asked.name, link.res.name)
        case "namespace", "profile":
            return any(isinstance(caveat, ProfileCaveat) for caveat in link.caveats)
        case "namespace", "domain":
            return any(isinstance(caveat, DomainCaveat) for caveat in link.caveats)
    return link.res == asked


@st.composite
def chains(draw: st.DrawFn, links_min: int = 1) -> tuple[Chain, Signer]:
    """A valid chain and the key of its leaf's audience."""
    holder = draw(st.sampled_from(SIGNERS))
    chain: Chain = issue(
        ANCHOR,
        audience=holder.public,
        resource=draw(st.sampled_from(RESOURCES)),
        rights=draw(SOME_RIGHTS),
        caveats=draw(st.sets(st.sampled_from(CAVEATS), max_size=3)),
        nbf_ns=NOW - 1000,
        exp_ns=NOW + 1000,
        nonce=nonce(0),
    )
    for number in range(1, draw(st.integers(links_min, 5))):
        parent = decode_link(chain[-1]).capability
        allowed = [c for c in CAVEATS if _may_add(parent, c)]
        following = draw(st.sampled_from(SIGNERS))
        chain = attenuate(
            chain,
            holder,
            audience=following.public,
            nonce=nonce(number),
            resource=draw(st.sampled_from([r for r in RESOURCES if parent.res.covers(r)])),
            rights=draw(st.sets(st.sampled_from(parent.rights), min_size=1)),
            caveats=draw(st.sets(st.sampled_from(allowed), max_size=2)) if allowed else (),
            nbf_ns=draw(st.integers(parent.nbf_ns, NOW)),
            exp_ns=draw(st.integers(NOW + 1, parent.exp_ns)),
            depth_left=draw(st.integers(5 - number, parent.depth_left - 1)),
        )
        holder = following
    return chain, holder


def _may_add(parent: Capability, caveat: Caveat) -> bool:
    if isinstance(caveat, ProfileCaveat | DomainCaveat):
        same = any(type(held) is type(caveat) for held in parent.caveats)
        return parent.res == ALL or same
    return True


@pytest.mark.req("AUT-1")
@given(chains())
def test_random_chains_allow_what_every_link_allows(drawn: tuple[Chain, Signer]) -> None:
    chain, holder = drawn
    handle = verify_chain(chain, ANCHORS, NOW, nobody)
    assert handle.audience == holder.public
    links = [decode_link(data).capability for data in chain]
    for right in Right:
        for resource in RESOURCES:
            expected = all(naively_allows(link, right, resource) for link in links)
            assert handle.permits(right, resource) == expected


def widenings(parent: Capability, child: Capability) -> dict[str, list[dict[str, Any]]]:
    """Changes of one field of `child`, by the step that has to refuse them."""
    rights = [r for r in Right if r not in parent.rights]
    return {
        "alignment": [{"iss": ANCHOR.public}],
        "subject": [{"sub": STRANGER.public}],
        "parent": [{"parent": None}, {"parent": CapabilityId(bytes(32))}],
        "attenuation.rights": [{"rights": tuple(sorted((*child.rights, r)))} for r in rights],
        "attenuation.resource": [{"res": r} for r in RESOURCES if not parent.res.covers(r)],
        "attenuation.caveats": [
            {"caveats": tuple(c for c in child.caveats if c != held)} for held in parent.caveats
        ]
        + [
            {"caveats": tuple(sorted({*child.caveats, new}, key=encode_record))}
            for new in (ProfileCaveat(names=("p", "q")), DomainCaveat(name="d"))
            if not _may_add(parent, new)
        ],
        "attenuation.times": [{"exp_ns": parent.exp_ns + 1}, {"nbf_ns": parent.nbf_ns - 1}],
        "attenuation.depth": [{"depth_left": d} for d in range(parent.depth_left, 8)],
    }


@pytest.mark.req("AUT-1")
@given(st.data(), chains(links_min=2))
def test_any_single_widened_field_is_refused(
    data: st.DataObject, drawn: tuple[Chain, Signer]
) -> None:
    chain, _ = drawn
    assume(len(chain) > 1)
    parent, child = (decode_link(link).capability for link in chain[-2:])
    issuer = next(signer for signer in SIGNERS if signer.public == child.iss)
    cases = [(step, c) for step, found in widenings(parent, child).items() for c in found]
    step, changes = data.draw(st.sampled_from(cases))
    signer = ANCHOR if step == "alignment" else issuer
    assert refused_at((*chain[:-1], forged(chain[-1], signer, **changes))) == step


# The cache.


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


def test_the_tools_forge_what_they_say() -> None:
    """Negative control: the forged leaf with nothing changed still verifies."""
    assert with_leaf(PRINCIPAL) == turn_chain("assembler")
    verify_chain(with_leaf(PRINCIPAL), ANCHORS, NOW, nobody)
    assert decode_link(with_leaf(PRINCIPAL, nonce=nonce(5))[1]).capability.nonce == nonce(5)
