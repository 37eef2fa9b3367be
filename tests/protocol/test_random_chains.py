"""Random chains, against a naive evaluator that looks at every link by itself."""

from __future__ import annotations

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
from protocol.chain import verify_chain
from protocol.ids import CapabilityId
from protocol.record import encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.chains import (
    ANCHOR,
    ANCHORS,
    NOW,
    PRINCIPAL,
    ROOM_A,
    ROOM_B,
    STRANGER,
    Chain,
    forged,
    named,
    namespace,
    nobody,
    nonce,
    refused_at,
)

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
