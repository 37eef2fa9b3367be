"""Token ids on the wire: little-endian unsigned 32-bit integers, four bytes each.

A list of ints would cost a head per token and a walk in Python for each; a turn's ids are one
byte string in a message instead. In memory a run of ids is a tuple of ints.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

from protocol.errors import ContentError

TOKEN_BYTES: Final = 4
TokenIds = tuple[int, ...]


def pack(ids: TokenIds | list[int]) -> bytes:
    """`ids` as bytes; raises ContentError for an id outside 0 … 2^32 - 1."""
    try:
        packed = array("I", ids)
    except (OverflowError, TypeError) as error:
        raise ContentError(f"a token id is an integer from 0 to 2^32 - 1: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes) -> TokenIds:
    """The ids that `pack` wrote; raises ContentError for a length that is no multiple of four."""
    if len(data) % TOKEN_BYTES:
        raise ContentError(f"{len(data)} bytes of token ids: not a multiple of {TOKEN_BYTES}")
    unpacked = array("I")
    unpacked.frombytes(data)
    if sys.byteorder == "big":
        unpacked.byteswap()
    return tuple(unpacked)
