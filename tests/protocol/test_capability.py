"""Capabilities: the record, its id, and the checks on the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol import cbor
from protocol.capability import (
    CAPABILITY_CONTEXT,
    Capability,
    attenuate,
    check_alignment,
    check_attenuation,
    decode_link,
)
from protocol.caveats import (
    DomainCaveat,
    NamespaceCaveat,
    OperationCaveat,
    ProfileCaveat,
    Scope,
    ServiceCaveat,
    TelemetryCaveat,
)
from protocol.errors import CapabilityError, RecordError
from protocol.ids import CapabilityId
from protocol.limits import CAPABILITY_BYTES_MAX, CAPABILITY_LIFETIME_NS_MAX, CHAIN_LINKS_MAX
from protocol.record import encode_record, object_id, to_value
from protocol.resource import ALL, Right
from protocol.signing import pack_signed, verify
from tests.chains import (
    ANCHOR,
    DOMAIN,
    NOW,
    PRINCIPAL,
    PROFILES,
    RIGHTS,
    ROOM_A,
    SECOND,
    STRANGER,
    forged,
    namespace,
    nonce,
    principal_chain,
    turn_chain,
)


def leaf(chain: tuple[bytes, ...]) -> Capability:
    return decode_link(chain[-1]).capability


def test_an_issued_capability_says_what_was_asked() -> None:
    link = decode_link(principal_chain()[0])
    assert link.capability == Capability(
        v=1,
        kind="huginn.cap/1",
        iss=ANCHOR.public,
        aud=PRINCIPAL.public,
        sub=ANCHOR.public,
        res=namespace("team/alice"),
        rights=tuple(sorted(RIGHTS)),
        caveats=(DOMAIN, PROFILES),
        nbf_ns=NOW - 1800 * SECOND,
        exp_ns=NOW + 1800 * SECOND,
        nonce=nonce(1),
        depth_left=CHAIN_LINKS_MAX - 1,
    )
    assert link.id == object_id(link.capability) == CapabilityId.of(link.payload)
    assert verify(ANCHOR.public, CAPABILITY_CONTEXT + link.payload, link.signature)


@pytest.mark.req("AUT-1")
def test_the_id_is_of_the_payload_so_another_signature_is_no_other_capability() -> None:
    link = decode_link(principal_chain()[0])
    again = cbor.encode([link.payload, bytes(64)])
    assert decode_link(again).id == link.id
    assert decode_link(again).signature != link.signature


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iss": bytes(31)}, "public keys of 32 bytes"),
        ({"aud": bytes(33)}, "public keys of 32 bytes"),
        ({"sub": b""}, "public keys of 32 bytes"),
        ({"nonce": bytes(15)}, "nonce is 16 bytes"),
        ({"rights": ()}, "at least one right"),
        ({"rights": (Right.WRITE, Right.READ)}, "sorted"),
        ({"rights": (Right.READ, Right.READ)}, "each once"),
        ({"caveats": (PROFILES, DOMAIN)}, "sorted by encoding"),
        ({"caveats": (DOMAIN, DOMAIN)}, "each once"),
        ({"caveats": (DomainCaveat(name="a"), DomainCaveat(name="b"))}, "at most one domain"),
        ({"nbf_ns": -1}, "negative"),
        ({"nbf_ns": NOW, "exp_ns": NOW}, "not before"),
        ({"exp_ns": 2**63 - 1}, "lifetime"),
        ({"nbf_ns": 0, "exp_ns": CAPABILITY_LIFETIME_NS_MAX + 1}, "lifetime"),
        ({"depth_left": -1}, "not in 0..7"),
        ({"depth_left": 8}, "not in 0..7"),
    ],
)
def test_each_field_has_its_rule(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        msgspec.structs.replace(leaf(principal_chain()), **changes)


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": None},
        {"kind": "huginn.cap/2"},
        {"rights": ["read", "fly"]},
        {"rights": "read"},
        {"rights": []},
        {"caveats": [{"type": "weekday", "names": ["monday"]}]},
        {"res": {"kind": "namespace", "name": "a/../b"}},
        {"res": "team/alice"},
        {"exp_ns": None},
        {"nbf_ns": "0"},
        {"parent": None},
        {"parent": bytes(31)},
        {"location": "unsigned"},
        {"depth_left": 1000},
    ],
)
def test_other_payloads_are_refused_in_decoding(changes: dict[str, Any]) -> None:
    value = {**to_value(leaf(principal_chain())), **changes}  # type: ignore[dict-item]
    signed = pack_signed(ANCHOR, CAPABILITY_CONTEXT, cbor.encode(value))
    with pytest.raises(CapabilityError) as caught:
        decode_link(signed)
    assert caught.value.step == "decode"


@pytest.mark.parametrize("field", ["nbf_ns", "exp_ns", "aud", "depth_left", "caveats", "nonce"])
def test_no_field_may_be_missing(field: str) -> None:
    value = to_value(leaf(principal_chain()))
    assert isinstance(value, dict)
    del value[field]
    with pytest.raises(CapabilityError, match="missing required field") as caught:
        decode_link(pack_signed(ANCHOR, CAPABILITY_CONTEXT, cbor.encode(value)))
    assert caught.value.step == "decode"


def test_a_capability_has_a_largest_size() -> None:
    caveats = [OperationCaveat(names=(f"{i:02}" + "x" * 200,)) for i in range(20)]
    with pytest.raises(CapabilityError, match=f"at most {CAPABILITY_BYTES_MAX}"):
        principal_chain(caveats=caveats)
    with pytest.raises(CapabilityError, match="rule size"):
        decode_link(bytes(CAPABILITY_BYTES_MAX + 1))


def test_issue_refuses_an_audience_that_is_no_key() -> None:
    with pytest.raises(CapabilityError, match="sound public key") as caught:
        principal_chain(audience=bytes(32))
    assert caught.value.step == "key"


def test_attenuate_inherits_what_is_left_out() -> None:
    parent = principal_chain()
    chain = attenuate(parent, PRINCIPAL, audience=ROOM_A.public, nonce=nonce(2))
    expected = msgspec.structs.replace(
        leaf(parent),
        iss=PRINCIPAL.public,
        aud=ROOM_A.public,
        nonce=nonce(2),
        depth_left=CHAIN_LINKS_MAX - 2,
        parent=decode_link(parent[0]).id,
    )
    assert chain[:-1] == parent
    assert leaf(chain) == expected


def test_attenuate_narrows_what_is_asked() -> None:
    child = leaf(
        turn_chain(
            "assembler",
            ProfileCaveat(names=("small",)),
            resource=namespace("team/alice/notes"),
            rights=(Right.READ,),
            nbf_ns=NOW,
            depth_left=0,
        )
    )
    assert child.res == namespace("team/alice/notes")
    assert child.rights == (Right.READ,)
    assert set(child.caveats) == {
        DOMAIN,
        PROFILES,
        ProfileCaveat(names=("small",)),
        ServiceCaveat(names=("assembler",)),
    }
    assert (child.nbf_ns, child.exp_ns, child.depth_left) == (NOW, NOW + 60 * SECOND, 0)


def test_a_child_ends_with_its_parent_at_the_latest() -> None:
    assert leaf(turn_chain("a", exp_ns=NOW + 10**6 * SECOND)).exp_ns == NOW + 1800 * SECOND


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("step", "extend"),
    [
        ("attenuation.rights", lambda: turn_chain("a", rights=(*RIGHTS, Right.ERASE))),
        ("attenuation.resource", lambda: turn_chain("a", resource=namespace("team"))),
        ("attenuation.resource", lambda: turn_chain("a", resource=namespace("team/alice2"))),
        ("attenuation.resource", lambda: turn_chain("a", resource=ALL)),
        ("attenuation.times", lambda: turn_chain("a", nbf_ns=NOW - 3600 * SECOND)),
        ("attenuation.depth", lambda: turn_chain("a", depth_left=7)),
        ("key", lambda: turn_chain("a", audience=bytes(32))),
        (
            "alignment",
            lambda: attenuate(
                principal_chain(), STRANGER, audience=STRANGER.public, nonce=nonce(2)
            ),
        ),
        (
            "attenuation.depth",
            lambda: attenuate(
                principal_chain(depth_left=0), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(2)
            ),
        ),
        (
            "length",
            lambda: attenuate((), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(2)),
        ),
        (
            "length",
            lambda: attenuate(
                principal_chain() * 8, PRINCIPAL, audience=ROOM_A.public, nonce=nonce(2)
            ),
        ),
    ],
)
def test_attenuate_refuses_to_widen(step: str, extend: Callable[[], object]) -> None:
    with pytest.raises(CapabilityError) as caught:
        extend()
    assert caught.value.step == step


def test_attenuate_refuses_another_domain() -> None:
    with pytest.raises(RecordError, match="at most one domain"):
        turn_chain("a", DomainCaveat(name="bob"))


@pytest.mark.req("AUT-1", "AUT-5")
@pytest.mark.parametrize(
    "caveat",
    [
        DomainCaveat(name="bob"),
        ProfileCaveat(names=("large",)),
        TelemetryCaveat(names=("public",)),
    ],
)
def test_a_principal_without_a_domain_or_profile_cannot_name_one(caveat: Any) -> None:
    with pytest.raises(CapabilityError, match="first appears here") as caught:
        attenuate(
            principal_chain(caveats=()),
            PRINCIPAL,
            audience=PRINCIPAL.public,
            nonce=nonce(2),
            caveats=(caveat,),
        )
    assert caught.value.step == "attenuation.caveats"


@pytest.mark.req("AUT-1", "AUT-7")
def test_one_who_is_on_a_domain_gives_itself_no_telemetry_on_another() -> None:
    """Also under a handle on everything, once a caveat has bound it to a domain."""
    whole = principal_chain(resource=ALL, caveats=(), rights=(Right.TELEMETRY,))
    public = TelemetryCaveat(names=("public",))

    def child(chain: tuple[bytes, ...], *caveats: Any) -> tuple[bytes, ...]:
        return attenuate(
            chain, PRINCIPAL, audience=PRINCIPAL.public, nonce=nonce(2), caveats=caveats
        )

    both = child(whole, DOMAIN, public)
    assert leaf(child(both, public)).caveats == leaf(both).caveats
    child(both, TelemetryCaveat(names=("bob",)))
    with pytest.raises(CapabilityError, match="telemetry on no other") as caught:
        child(child(whole, DOMAIN), public)
    assert caught.value.step == "attenuation.caveats"


@pytest.mark.req("AUT-1", "AUT-7")
def test_one_who_has_telemetry_on_some_domains_binds_a_handle_to_no_other() -> None:
    """A handle is told of the domain that it is on: naming it may not be a gain."""
    public = TelemetryCaveat(names=("public",))
    some = principal_chain(resource=ALL, caveats=(public,), rights=(Right.TELEMETRY,))
    fields: dict[str, Any] = {"audience": PRINCIPAL.public, "nonce": nonce(2)}
    with pytest.raises(CapabilityError, match="'alice' is none of them") as caught:
        attenuate(some, PRINCIPAL, caveats=(DOMAIN,), **fields)
    assert caught.value.step == "attenuation.caveats"
    bound = attenuate(some, PRINCIPAL, caveats=(DomainCaveat(name="public"),), **fields)
    assert Scope.of(leaf(bound).caveats).domain == "public"


def test_a_holder_of_all_may_name_a_domain() -> None:
    whole = principal_chain(resource=ALL, caveats=(), rights=(Right.TELEMETRY, Right.READ))
    child = attenuate(
        whole,
        PRINCIPAL,
        audience=ROOM_A.public,
        nonce=nonce(2),
        resource=namespace("team"),
        caveats=(DOMAIN, PROFILES),
    )
    assert leaf(child).caveats == (DOMAIN, PROFILES)


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("alignment", {"iss": STRANGER.public}),
        ("subject", {"sub": STRANGER.public}),
        ("parent", {"parent": CapabilityId(bytes(32))}),
        ("parent", {"parent": None}),
    ],
)
def test_alignment_has_a_step_for_each_field(step: str, changes: dict[str, Any]) -> None:
    parent, child = (decode_link(link) for link in turn_chain("a"))
    check_alignment(parent.id, parent.capability, child.capability)
    changed = msgspec.structs.replace(child.capability, **changes)
    with pytest.raises(CapabilityError) as caught:
        check_alignment(parent.id, parent.capability, changed)
    assert caught.value.step == step


@pytest.mark.parametrize(
    "caveats",
    [
        (),
        (DOMAIN,),
        (PROFILES,),
        (DOMAIN, ProfileCaveat(names=("large", "small", "vast"))),
        (DomainCaveat(name="bob"), PROFILES),
        (DOMAIN, NamespaceCaveat(paths=("team",))),
    ],
)
def test_every_caveat_of_the_parent_is_repeated(caveats: tuple[Any, ...]) -> None:
    parent, child = (decode_link(link).capability for link in turn_chain("a"))
    check_attenuation(parent, child)
    changed = msgspec.structs.replace(child, caveats=tuple(sorted(caveats, key=encode_record)))
    with pytest.raises(CapabilityError) as caught:
        check_attenuation(parent, changed)
    assert caught.value.step == "attenuation.caveats"


def test_forged_keeps_everything_else() -> None:
    """The tool of the other tests: with nothing changed it gives the same bytes."""
    (link,) = principal_chain()
    assert forged(link, ANCHOR) == link
