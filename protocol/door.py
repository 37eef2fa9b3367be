"""The door of a room: a message comes in only as a handle that allows it.

Every room verifies for itself. The chain is verified first (from the cache when it can be), then
the invocation, then that each delegation was issued by the very key that signed the invocation:
otherwise a caller could enclose a delegation that was issued to this room for someone else, and
the room would ask with that other's authority (the confused deputy).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocol.capability import decode_link
from protocol.chain import ChainCache, IsRevoked
from protocol.envelope import Envelope
from protocol.errors import CapabilityError, InvocationError
from protocol.handle import Handle
from protocol.invocation import Invocation, verify_invocation
from protocol.nonces import HighMark, NonceWindow
from protocol.resource import Right


@dataclass(frozen=True, slots=True)
class Admitted:
    """What came in: the caller's handle, and the one use of it."""

    handle: Handle
    invocation: Invocation


class Door:
    """Holds what a room needs to verify: its name, the right that each of its operations needs,
    the anchors, and the memory of chains and nonces."""

    def __init__(
        self,
        service: str,
        op_to_right: Mapping[str, Right | None],
        anchors: Collection[bytes],
        *,
        started_ns: int,
        mark: HighMark | None = None,
    ) -> None:
        """`op_to_right` as `verify_invocation` takes it. `started_ns`: the room's own start;
        `mark`: what it keeps of its starts before. Both as `NonceWindow` takes them."""
        self._service = service
        self._op_to_right = dict(op_to_right)
        self._chains = ChainCache(anchors)
        self.nonces = NonceWindow(started_ns, mark=mark)

    def admit(
        self, envelope: Envelope, *, now_ns: int, epoch: int, is_revoked: IsRevoked
    ) -> Admitted:
        """The handle and invocation of `envelope`, accepted for this one time.

        `epoch` and `is_revoked` are the authority's, as `ChainCache.verify` takes them. Raises
        CapabilityError or InvocationError with the step that refused: `service` also when the
        envelope is for another room, `delegation` for one that the signer did not issue.
        """
        if envelope.room != self._service:
            raise InvocationError(
                "service", f"an envelope for '{envelope.room}' came to '{self._service}'"
            )
        handle = self._chains.verify(
            envelope.chain, now_ns=now_ns, epoch=epoch, is_revoked=is_revoked
        )
        for room, chain in (envelope.delegations or {}).items():
            _check_delegation(room, chain, handle)
        invocation = verify_invocation(
            envelope.invocation,
            handle,
            service=self._service,
            op=envelope.op,
            op_to_right=self._op_to_right,
            args=envelope.arguments(),
            now_ns=now_ns,
            nonces=self.nonces,
        )
        return Admitted(handle, invocation)


def _check_delegation(room: str, chain: tuple[bytes, ...], handle: Handle) -> None:
    try:
        issuer = decode_link(chain[-1]).capability.iss if chain else b""
    except CapabilityError as error:
        raise InvocationError("delegation", f"the chain for '{room}': {error}") from error
    if issuer != handle.audience:
        raise InvocationError(
            "delegation", f"the chain for '{room}' was not issued by the signer of this message"
        )
