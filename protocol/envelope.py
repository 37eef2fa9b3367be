"""Envelopes: every message to a room is one, and every answer is a `Reply`.

An envelope carries what is asked, the chain that allows it, and the invocation that binds the two.
The invocation signs everything in the envelope but the chain and itself (`Envelope.arguments`), so
that no field can be changed on the way; the chain is bound by its leaf's id.

`delegations` lets a room ask other rooms for the same caller: for each of them a chain whose leaf
is this room's own key, with which this room signs. A room never asks with rights of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from protocol import cbor
from protocol.capability import decode_link
from protocol.errors import HuginnError, RecordError, from_map
from protocol.ids import ArgumentsId
from protocol.invocation import invoke
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.record import Record, decode_record, encode_record, to_value
from protocol.resource import check_name
from protocol.signing import Signer

REQUEST_ID_CHARS_MAX: Final = 128
DELEGATIONS_MAX: Final = 16
TURN_BYTES_MAX: Final = 64


class Order(Record):
    """Where a message stands within its turn: `sequence` counts from 0 without a gap."""

    turn: bytes
    sequence: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.turn) <= TURN_BYTES_MAX or self.sequence < 0:
            raise RecordError(f"a turn is 1 to {TURN_BYTES_MAX} bytes, a sequence 0 or more")


class Envelope(Record):
    """One message: `op` of `room`, with `body` (CBOR of the operation's own record).

    `request_id` follows a request through the rooms, for logs; it grants nothing.
    """

    v: Literal[1]
    room: str
    op: str
    request_id: str
    chain: tuple[bytes, ...]
    invocation: bytes
    body: bytes
    delegations: dict[str, tuple[bytes, ...]] | None = None
    order: Order | None = None

    def __post_init__(self) -> None:
        check_name(self.room)
        check_name(self.op)
        if len(self.request_id) > REQUEST_ID_CHARS_MAX:
            raise RecordError(f"a request id has at most {REQUEST_ID_CHARS_MAX} characters")
        if self.delegations is not None and not 1 <= len(self.delegations) <= DELEGATIONS_MAX:
            raise RecordError(f"1 to {DELEGATIONS_MAX} delegations, or the field is left out")

    def arguments(self) -> bytes:
        """What the invocation signs: every field but `chain` and `invocation`."""
        return _arguments(
            room=self.room,
            op=self.op,
            request_id=self.request_id,
            body=self.body,
            delegations=self.delegations,
            order=self.order,
        )


def _arguments(
    *,
    room: str,
    op: str,
    request_id: str,
    body: bytes,
    delegations: Mapping[str, Sequence[bytes]] | None,
    order: Order | None,
) -> bytes:
    # The body by its digest: it may be large, and is hashed once instead of copied.
    return cbor.encode(
        {
            "room": room,
            "op": op,
            "request_id": request_id,
            "body": ArgumentsId.of(body).digest,
            "delegations": {k: list(chain) for k, chain in (delegations or {}).items()},
            "order": None if order is None else to_value(order),
        }
    )


class ErrorBody(Record):
    """`HuginnError.to_map`, as it travels."""

    code: str
    message: str
    details: dict[str, int | str | bool | None]


class Reply(Record):
    """The answer: either `body` or `error`."""

    v: Literal[1]
    body: bytes | None = None
    error: ErrorBody | None = None

    def __post_init__(self) -> None:
        if (self.body is None) == (self.error is None):
            raise RecordError("a reply has either a body or an error")


def encode_envelope(envelope: Envelope) -> bytes:
    """The message; raises EncodingError with rule `size` over `MESSAGE_BYTES_MAX`."""
    return encode_record(envelope, size_max=MESSAGE_BYTES_MAX)


def decode_envelope(message: bytes) -> Envelope:
    """The envelope in `message`, of which nothing is verified yet.

    Raises EncodingError or RecordError as `decode_record` does.
    """
    return decode_record(Envelope, message, size_max=MESSAGE_BYTES_MAX)


def seal(
    chain: Sequence[bytes],
    signer: Signer,
    *,
    room: str,
    op: str,
    body: bytes,
    ts_ns: int,
    nonce: bytes,
    request_id: str,
    delegations: Mapping[str, Sequence[bytes]] | None = None,
    order: Order | None = None,
) -> bytes:
    """The message that asks `op` of `room`, signed now (`ts_ns`) by the chain's leaf audience.

    `nonce`: 16 fresh random bytes. Raises CapabilityError with step `decode` for a chain whose
    leaf cannot be read; whether the chain allows it is for the room to say.
    """
    invocation = invoke(
        signer,
        cap=decode_link(chain[-1]).id,
        service=room,
        op=op,
        args=_arguments(
            room=room,
            op=op,
            request_id=request_id,
            body=body,
            delegations=delegations,
            order=order,
        ),
        ts_ns=ts_ns,
        nonce=nonce,
    )
    envelope = Envelope(
        v=1,
        room=room,
        op=op,
        request_id=request_id,
        chain=tuple(chain),
        invocation=invocation,
        body=body,
        delegations={k: tuple(links) for k, links in (delegations or {}).items()} or None,
        order=order,
    )
    return encode_envelope(envelope)


def seal_reply(body: bytes) -> bytes:
    """The message that answers with `body`."""
    return encode_record(Reply(v=1, body=body), size_max=MESSAGE_BYTES_MAX)


def seal_error(error: HuginnError) -> bytes:
    """The message that answers with `error`."""
    carried = ErrorBody(code=error.code, message=error.message, details=dict(error.details))
    return encode_record(Reply(v=1, error=carried), size_max=MESSAGE_BYTES_MAX)


def open_reply(message: bytes) -> bytes:
    """The body of a reply. Raises the error that the reply carries, as its own class, and
    EncodingError or RecordError for bytes that are not a reply."""
    reply = decode_record(Reply, message, size_max=MESSAGE_BYTES_MAX)
    if reply.body is None:
        raise from_map(None if reply.error is None else to_value(reply.error))
    return reply.body
