"""Capabilities: signed statements that one key may do certain things, and may pass less on.

    signed capability = CBOR [payload, signature]      payload = CBOR of `Capability`
    signature         = Ed25519 by `iss` over "huginn.cap/1" ‖ 00 ‖ payload
    cap_id            = CapabilityId of the payload, never of the signature

so another signature over the same payload is the same capability, and revoking one revokes both.
A chain is up to eight signed capabilities, root first: the root is issued by an anchor to a
principal, and each further one by the audience of the one before it. Source: AUT-1, authority
design.

`issue` and `attenuate` make capabilities; `check_alignment` and `check_attenuation` are the rules
between a link and the next, the same on the way out (`attenuate`) and in (`chain.verify_chain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from protocol import cbor
from protocol.caveats import Caveat, DomainCaveat, ProfileCaveat, Scope, TelemetryCaveat
from protocol.errors import CapabilityError, EncodingError, RecordError
from protocol.ids import CapabilityId
from protocol.limits import (
    CAPABILITY_BYTES_MAX,
    CAPABILITY_LIFETIME_NS_MAX,
    CAVEATS_MAX,
    CHAIN_LINKS_MAX,
)
from protocol.record import Identified, decode_record, encode_record, to_value
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import (
    NONCE_BYTES,
    PUBLIC_BYTES,
    Signer,
    is_public_key,
    pack_signed,
    unpack_signed,
)

CAPABILITY_CONTEXT: Final = b"huginn.cap/1\0"


class Capability(Identified):
    """The payload. `iss` issued it to `aud`; `sub` is the anchor whose authority it is; all three
    are public keys of 32 bytes. It holds from `nbf_ns` until just before `exp_ns` (Unix time).
    `depth_left`: how many more links may follow it. `parent` is absent at the root."""

    ID = CapabilityId

    v: Literal[1]
    kind: Literal["huginn.cap/1"]
    iss: bytes
    aud: bytes
    sub: bytes
    res: Resource
    rights: tuple[Right, ...]
    caveats: tuple[Caveat, ...]
    nbf_ns: int
    exp_ns: int
    nonce: bytes
    depth_left: int
    parent: CapabilityId | None = None

    def __post_init__(self) -> None:
        if any(len(key) != PUBLIC_BYTES for key in (self.iss, self.aud, self.sub)):
            raise RecordError(f"iss, aud and sub are public keys of {PUBLIC_BYTES} bytes")
        if len(self.nonce) != NONCE_BYTES:
            raise RecordError(f"a capability's nonce is {NONCE_BYTES} bytes")
        if not self.rights or list(self.rights) != sorted(set(self.rights)):
            raise RecordError("a capability lists at least one right, sorted, each once")
        if len(self.caveats) > CAVEATS_MAX or list(self.caveats) != _sorted(self.caveats):
            raise RecordError(f"at most {CAVEATS_MAX} caveats, sorted by encoding, each once")
        if not 0 <= self.nbf_ns < self.exp_ns:
            raise RecordError(f"nbf_ns {self.nbf_ns} is negative or not before {self.exp_ns}")
        if self.exp_ns - self.nbf_ns > CAPABILITY_LIFETIME_NS_MAX:
            raise RecordError(
                f"a lifetime of {self.exp_ns - self.nbf_ns} ns, at most "
                f"{CAPABILITY_LIFETIME_NS_MAX} are allowed; issue it again when it runs out"
            )
        if not 0 <= self.depth_left < CHAIN_LINKS_MAX:
            raise RecordError(f"depth_left {self.depth_left} is not in 0..{CHAIN_LINKS_MAX - 1}")
        Scope.of(self.caveats)


class Link(NamedTuple):
    """One capability of a chain as received: decoded, its signature not verified yet."""

    id: CapabilityId
    capability: Capability
    payload: bytes
    signature: bytes


@lru_cache(maxsize=4096)
def decode_link(data: bytes) -> Link:
    """The capability in `data`. Raises CapabilityError with step `decode` for bytes that are not
    exactly one signed capability of at most 4096 bytes."""
    try:
        payload, signature = unpack_signed(data, size_max=CAPABILITY_BYTES_MAX)
        capability = decode_record(Capability, payload, size_max=CAPABILITY_BYTES_MAX)
    except (EncodingError, RecordError) as error:
        raise CapabilityError("decode", f"not a signed capability: {error}") from error
    return Link(CapabilityId.of(payload), capability, payload, signature)


def issue(
    signer: Signer,
    *,
    audience: bytes,
    resource: Resource,
    rights: Iterable[Right],
    caveats: Iterable[Caveat] = (),
    nbf_ns: int,
    exp_ns: int,
    nonce: bytes,
    depth_left: int = CHAIN_LINKS_MAX - 1,
) -> tuple[bytes]:
    """A chain of one link: the anchor `signer` grants `rights` on `resource` to `audience`.

    `nonce`: 16 fresh random bytes. Raises RecordError as `Capability` does, and CapabilityError
    with step `key` for an audience that is not a public key.
    """
    root = Capability(
        v=1,
        kind="huginn.cap/1",
        iss=signer.public,
        aud=audience,
        sub=signer.public,
        res=resource,
        rights=tuple(sorted(set(rights))),
        caveats=tuple(_sorted(caveats)),
        nbf_ns=nbf_ns,
        exp_ns=exp_ns,
        nonce=nonce,
        depth_left=depth_left,
    )
    return (_signed(signer, root),)


def attenuate(
    chain: Sequence[bytes],
    signer: Signer,
    *,
    audience: bytes,
    nonce: bytes,
    resource: Resource | None = None,
    rights: Iterable[Right] | None = None,
    caveats: Iterable[Caveat] = (),
    nbf_ns: int | None = None,
    exp_ns: int | None = None,
    depth_left: int | None = None,
) -> tuple[bytes, ...]:
    """`chain` and one link more, from its leaf's audience `signer` to `audience`.

    `caveats` are added to the parent's. What is left out is the parent's: its resource, rights
    and times; `depth_left` is one less. `exp_ns` may lie past the parent's end: the child then
    ends with the parent. Raises CapabilityError with the step that `verify_chain` would refuse
    at, and RecordError as `Capability` does; only the leaf is looked at, and no signature.
    """
    if not 1 <= len(chain) < CHAIN_LINKS_MAX:
        raise CapabilityError(
            "length", f"a chain of {len(chain)} links cannot be extended: 1 to {CHAIN_LINKS_MAX}"
        )
    parent_id, parent, _, _ = decode_link(chain[-1])
    depth = parent.depth_left - 1 if depth_left is None else depth_left
    if depth < 0:
        raise CapabilityError("attenuation.depth", "the parent's depth_left is 0: it ends a chain")
    child = Capability(
        v=1,
        kind="huginn.cap/1",
        iss=signer.public,
        aud=audience,
        sub=parent.sub,
        res=parent.res if resource is None else resource,
        rights=parent.rights if rights is None else tuple(sorted(set(rights))),
        caveats=tuple(_sorted((*parent.caveats, *caveats))),
        nbf_ns=parent.nbf_ns if nbf_ns is None else nbf_ns,
        exp_ns=parent.exp_ns if exp_ns is None else min(exp_ns, parent.exp_ns),
        nonce=nonce,
        depth_left=depth,
        parent=parent_id,
    )
    check_alignment(parent_id, parent, child)
    check_attenuation(parent, child)
    return (*chain, _signed(signer, child))


def check_alignment(parent_id: CapabilityId, parent: Capability, child: Capability) -> None:
    """Raises CapabilityError unless `child` was issued under exactly this parent, with step
    `alignment` (another key issued it), `subject` (another root) or `parent` (another hash)."""
    if child.iss != parent.aud:
        raise CapabilityError("alignment", "a link was not issued by the audience of its parent")
    if child.sub != parent.sub:
        raise CapabilityError("subject", "a link names another root authority than its parent")
    if child.parent != parent_id:
        raise CapabilityError("parent", f"a link does not name its parent {parent_id}")


def check_attenuation(parent: Capability, child: Capability) -> None:
    """Raises CapabilityError where `child` grants more than `parent`, with step
    `attenuation.` and `rights`, `resource`, `caveats`, `times` or `depth`."""
    added = set(child.rights) - set(parent.rights)
    if added:
        names = ", ".join(sorted(right.value for right in added))
        raise CapabilityError("attenuation.rights", f"the parent does not hold: {names}")
    if not parent.res.covers(child.res):
        raise CapabilityError(
            "attenuation.resource", f"'{child.res}' is not covered by the parent's '{parent.res}'"
        )
    if not set(parent.caveats) <= set(child.caveats):
        raise CapabilityError("attenuation.caveats", "a caveat of the parent is missing")
    for kind in (DomainCaveat, ProfileCaveat, TelemetryCaveat):
        if parent.res.kind is not ResourceKind.ALL and (
            _has(child.caveats, kind) and not _has(parent.caveats, kind)
        ):
            raise CapabilityError(
                "attenuation.caveats",
                f"a {kind.__name__} first appears here, but the parent reaches none: the root "
                "has to name it",
            )
    if (
        _has(child.caveats, TelemetryCaveat)
        and not _has(parent.caveats, TelemetryCaveat)
        and _has(parent.caveats, DomainCaveat)
    ):
        raise CapabilityError(
            "attenuation.caveats", "the parent is on one domain: it has telemetry on no other"
        )
    _check_first_domain(parent, child)
    if child.nbf_ns < parent.nbf_ns or child.exp_ns > parent.exp_ns:
        raise CapabilityError(
            "attenuation.times",
            f"[{child.nbf_ns}, {child.exp_ns}) is not inside [{parent.nbf_ns}, {parent.exp_ns})",
        )
    if child.depth_left >= parent.depth_left:
        raise CapabilityError(
            "attenuation.depth",
            f"depth_left {child.depth_left}, the parent has {parent.depth_left}",
        )


def _check_first_domain(parent: Capability, child: Capability) -> None:
    """A handle has telemetry on the domain that it is on: one that first names it must lie below a
    parent that is told of it."""
    if _has(parent.caveats, DomainCaveat) or not _has(parent.caveats, TelemetryCaveat):
        return
    domain, told = Scope.of(child.caveats).domain, Scope.of(parent.caveats).telemetry or ()
    if domain is not None and domain not in told:
        raise CapabilityError(
            "attenuation.caveats",
            f"the parent has telemetry on named domains alone, and {domain!r} is none of them",
        )


def check_audience(capability: Capability) -> None:
    """Raises CapabilityError with step `key` unless the audience is a sound public key."""
    if not is_public_key(capability.aud):
        raise CapabilityError("key", f"audience {capability.aud.hex()} is not a sound public key")


def _signed(signer: Signer, capability: Capability) -> bytes:
    check_audience(capability)
    signed = pack_signed(signer, CAPABILITY_CONTEXT, encode_record(capability))
    if len(signed) > CAPABILITY_BYTES_MAX:
        raise CapabilityError(
            "decode", f"a signed capability of {len(signed)} bytes, at most {CAPABILITY_BYTES_MAX}"
        )
    return signed


def _sorted(caveats: Iterable[Caveat]) -> list[Caveat]:
    distinct = set(caveats)
    if len(distinct) < 2:
        return list(distinct)
    return sorted(distinct, key=lambda caveat: cbor.encode(to_value(caveat)))


def _has(caveats: Iterable[Caveat], kind: type[Caveat]) -> bool:
    return any(isinstance(caveat, kind) for caveat in caveats)
