"""Keys, chains and forgeries for the tests of authority. Every key is known: nothing is secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from protocol.capability import CAPABILITY_CONTEXT, Capability, attenuate, decode_link, issue
from protocol.caveats import Caveat, DomainCaveat, ProfileCaveat, ServiceCaveat
from protocol.chain import verify_chain
from protocol.errors import CapabilityError
from protocol.ids import CapabilityId
from protocol.record import encode_record
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer, pack_signed

Chain = tuple[bytes, ...]

ANCHOR, PRINCIPAL, ROOM_A, ROOM_B, STRANGER = (Signer(bytes([n]) * 32) for n in range(1, 6))
ANCHORS = frozenset((ANCHOR.public,))
SECOND = 10**9
NOW = 1_800_000_000 * SECOND
RIGHTS = (Right.READ, Right.WRITE, Right.ASSEMBLE, Right.ADVANCE, Right.GENERATE, Right.TELEMETRY)
DOMAIN = DomainCaveat(name="alice")
PROFILES = ProfileCaveat(names=("large", "small"))


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def nobody(_id: CapabilityId, _capability: Capability) -> bool:
    """Nothing is revoked."""
    return False


def namespace(path: str) -> Resource:
    return Resource(kind=ResourceKind.NAMESPACE, name=path)


def named(kind: ResourceKind, name: str) -> Resource:
    return Resource(kind=kind, name=name)


def principal_chain(**changes: Any) -> Chain:
    """What an operator grants to one principal, for an hour around NOW."""
    fields: dict[str, Any] = {
        "audience": PRINCIPAL.public,
        "resource": namespace("team/alice"),
        "rights": RIGHTS,
        "caveats": (DOMAIN, PROFILES),
        "nbf_ns": NOW - 1800 * SECOND,
        "exp_ns": NOW + 1800 * SECOND,
        "nonce": nonce(1),
    }
    return issue(ANCHOR, **{**fields, **changes})


def turn_chain(room: str, *caveats: Caveat, **changes: Any) -> Chain:
    """What the principal's own key carries to one room for one turn."""
    fields: dict[str, Any] = {
        "audience": PRINCIPAL.public,
        "nonce": nonce(2),
        "caveats": (ServiceCaveat(names=(room,)), *caveats),
        "exp_ns": NOW + 60 * SECOND,
    }
    return attenuate(principal_chain(), PRINCIPAL, **{**fields, **changes})


def three_links() -> Chain:
    """A turn chain that the principal gave on to a room."""
    return attenuate(turn_chain("assembler"), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(3))


def forged(link: bytes, signer: Signer, **changes: Any) -> bytes:
    """`link` with fields changed, signed by `signer` with no check at all but the record's own."""
    payload = encode_record(msgspec.structs.replace(decode_link(link).capability, **changes))
    return pack_signed(signer, CAPABILITY_CONTEXT, payload)


def refused_at(chain: Sequence[bytes], **changes: Any) -> str:
    """The step that refuses `chain`."""
    arguments = {"anchors": ANCHORS, "now_ns": NOW, "is_revoked": nobody, **changes}
    with pytest.raises(CapabilityError) as caught:
        verify_chain(chain, **arguments)
    return caught.value.step
