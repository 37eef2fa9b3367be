"""Invocations: one use of a handle, for one operation of one room, with one body, once.

    signed invocation = CBOR [payload, signature]      payload = CBOR of `Invocation`
    signature         = Ed25519 by the leaf's audience over "huginn.inv/1" ‖ 00 ‖ payload

The steps, in order, each an error of its own (`InvocationError.step`):

    decode     exactly one signed invocation, strictly decoded as received
    signer     signed by the audience of the handle's leaf
    capability made for that leaf
    service    addressed to this room, and the handle's caveats admit it
    operation  the message's operation, which exists here and which the caveats admit
    right      the handle holds the right that the operation needs
    arguments  made for these very arguments
    request    the nonce that a request caveat demands
    time       signed within 30 s of now, either way
    start      not before this room's own start
    nonce      not seen before

Source: AUT-2, authority design. What the operation then touches is asked of the handle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from protocol.errors import EncodingError, InvocationError, RecordError
from protocol.handle import Handle
from protocol.ids import ArgumentsId, CapabilityId
from protocol.limits import INVOCATION_BYTES_MAX, INVOCATION_SKEW_NS_MAX
from protocol.nonces import NonceWindow
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Right, check_name
from protocol.signing import NONCE_BYTES, Signer, pack_signed, unpack_signed, verify

INVOCATION_CONTEXT: Final = b"huginn.inv/1\0"


class Invocation(Record):
    """The payload. `ts_ns`: Unix time of signing; `nonce`: 16 fresh random bytes."""

    v: Literal[1]
    cap: CapabilityId
    service: str
    op: str
    args_digest: ArgumentsId
    ts_ns: int
    nonce: bytes

    def __post_init__(self) -> None:
        check_name(self.service)
        check_name(self.op)
        if len(self.nonce) != NONCE_BYTES:
            raise RecordError(f"an invocation's nonce is {NONCE_BYTES} bytes")


def invoke(
    signer: Signer,
    *,
    cap: CapabilityId,
    service: str,
    op: str,
    args: bytes,
    ts_ns: int,
    nonce: bytes,
) -> bytes:
    """A signed invocation of `op` at `service` under the leaf `cap`, for exactly `args`."""
    invocation = Invocation(
        v=1,
        cap=cap,
        service=service,
        op=op,
        args_digest=ArgumentsId.of(args),
        ts_ns=ts_ns,
        nonce=nonce,
    )
    return pack_signed(signer, INVOCATION_CONTEXT, encode_record(invocation))


def verify_invocation(
    signed: bytes,
    handle: Handle,
    *,
    service: str,
    op: str,
    op_to_right: Mapping[str, Right | None],
    args: bytes,
    now_ns: int,
    nonces: NonceWindow,
) -> Invocation:
    """The invocation in `signed`, accepted for this one time.

    `service` is the room that verifies, `op` and `args` what the message asks of it, `op_to_right`
    the right that each of the room's operations needs (None: whatever the handle has). Raises
    InvocationError with the first step that does not hold, Unavailable when `nonces` is full. A
    refused one uses up no nonce.
    """
    invocation = _signed_by(signed, handle)
    if invocation.cap != handle.leaf:
        raise InvocationError("capability", f"made for {invocation.cap}, not for {handle.leaf}")
    if invocation.service != service:
        raise InvocationError("service", f"addressed to '{invocation.service}', not '{service}'")
    if not handle.scope.admits_service(service):
        raise InvocationError("service", f"the handle's caveats do not admit '{service}'")
    if invocation.op != op:
        raise InvocationError("operation", f"signed for '{invocation.op}', sent as '{op}'")
    if op not in op_to_right:
        raise InvocationError("operation", f"'{service}' has no operation '{op}'")
    if not handle.scope.admits_operation(op):
        raise InvocationError("operation", f"the handle's caveats do not admit '{op}'")
    right = op_to_right[op]
    if right is not None and right not in handle.rights:
        raise InvocationError("right", f"'{op}' needs the right '{right.value}'")
    if invocation.args_digest != ArgumentsId.of(args):
        raise InvocationError("arguments", "the arguments are not the ones that were signed")
    if handle.scope.nonce is not None and invocation.nonce != handle.scope.nonce:
        raise InvocationError("request", "the handle is bound to another request's nonce")
    if abs(now_ns - invocation.ts_ns) > INVOCATION_SKEW_NS_MAX:
        raise InvocationError(
            "time",
            f"signed at {invocation.ts_ns} ns, now is {now_ns}: more than "
            f"{INVOCATION_SKEW_NS_MAX} ns apart",
        )
    nonces.admit(handle.audience, invocation.nonce, invocation.ts_ns, now_ns)
    return invocation


def _signed_by(signed: bytes, handle: Handle) -> Invocation:
    try:
        payload, signature = unpack_signed(signed, size_max=INVOCATION_BYTES_MAX)
        invocation = decode_record(Invocation, payload, size_max=INVOCATION_BYTES_MAX)
    except (EncodingError, RecordError) as error:
        raise InvocationError("decode", f"not a signed invocation: {error}") from error
    if not verify(handle.audience, INVOCATION_CONTEXT + payload, signature):
        raise InvocationError("signer", "not signed by the audience of the handle's leaf")
    return invocation
