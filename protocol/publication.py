"""What is public on purpose, and the statement by which a worker may believe it (AUT-5).

The namespace `public` holds the blocks that the operator published. It belongs to the ropes room:
no principal is enrolled there and nobody commits to it, so being a member of it is what being
public means, and no request can claim it. The computation-sharing domain of the same name holds
the prefix states of sequences' leading public blocks.

A worker is sent tokens under a caller's handle. That their block is public it can look up; that
they are that block's tokens and no others it cannot tell. So the assembler, which rendered them,
says so:

    statement = CBOR [payload, signature]        payload = CBOR of `PublicPrefix`
    signature = Ed25519 by the assembler over "huginn.public/1" ‖ 00 ‖ payload

It covers each segment whole: with private tokens under a public block's name, with another role
(which would cut the schedule elsewhere) or on another profile it does not verify. It says nothing
of anybody, so it may be shown twice; whether the blocks are public still is asked of the ropes
room, not of the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from protocol import cbor
from protocol.errors import AuthorityError, EncodingError, RecordError
from protocol.ids import framed_digest
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages.assembler import Segment
from protocol.record import Record, decode_record, encode_record, to_value
from protocol.signing import Signer, pack_signed, unpack_signed, verify

# The namespace of what is published, and the domain in which it is computed.
PUBLIC: Final = "public"
# Of one installation: each worker holds the ids of all of them.
PUBLICATIONS_MAX: Final = 4096
_CONTEXT: Final = b"huginn.public/1\0"
_STATEMENT_BYTES_MAX: Final = 1024


class PublicPrefix(Record):
    """The payload: under the profile of that name, the first `segments` segments of a token stream
    are what blocks are that were public then. `digest`: 32 bytes, of those segments."""

    v: Literal[1]
    profile: str
    segments: int
    digest: bytes


def state_prefix(signer: Signer, profile: str, segments: Sequence[Segment]) -> bytes:
    """The statement that `segments`, the first of a stream, are public blocks' tokens. For the
    assembler alone: `signer` is its key."""
    payload = PublicPrefix(v=1, profile=profile, segments=len(segments), digest=_digest(segments))
    return pack_signed(signer, _CONTEXT, encode_record(payload))


def check_prefix(
    statement: bytes, assembler: bytes, profile: str, segments: Sequence[Segment]
) -> int:
    """For how many of `segments`, from the first on, the assembler (its public key) stated this.

    Raises AuthorityError with step `public` for anything but its statement, for this profile, over
    exactly these segments.
    """
    try:
        payload, signature = unpack_signed(statement, size_max=_STATEMENT_BYTES_MAX)
        prefix = decode_record(PublicPrefix, payload)
    except (EncodingError, RecordError) as error:
        raise AuthorityError("public", f"not a statement of what is public: {error}") from error
    if not verify(assembler, _CONTEXT + payload, signature):
        raise AuthorityError("public", "what is said to be public was not said by the assembler")
    if prefix.profile != profile:
        raise AuthorityError("public", f"what is public was stated for {prefix.profile!r:.80}")
    if not 0 < prefix.segments <= len(segments) or prefix.digest != _digest(
        segments[: prefix.segments]
    ):
        raise AuthorityError("public", "what is said to be public are other segments than these")
    return prefix.segments


def _digest(segments: Sequence[Segment]) -> bytes:
    body = cbor.encode([to_value(each) for each in segments], size_max=MESSAGE_BYTES_MAX)
    return framed_digest("huginn.public-segments/1", body)
