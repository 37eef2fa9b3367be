"""Handles as text: what a holder keeps in a file or shows in a header.

    text = "hgh-" + base64url without padding of CBOR [link, …], root first

There is no secret in it: to use a handle takes the key that its last link names. One whose last
link names a gateway's key is used by showing it to that gateway, so it is kept like an API key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from protocol import cbor
from protocol.errors import CapabilityError, EncodingError
from protocol.limits import CAPABILITY_BYTES_MAX, CHAIN_LINKS_MAX

HANDLE_PREFIX: Final = "hgh-"
_BYTES_MAX: Final = CHAIN_LINKS_MAX * (CAPABILITY_BYTES_MAX + 8)
HANDLE_CHARS_MAX: Final = len(HANDLE_PREFIX) + (_BYTES_MAX * 4 + 2) // 3


def encode_handle(chain: Sequence[bytes]) -> str:
    """The text of `chain`."""
    packed = base64.urlsafe_b64encode(cbor.encode(list(chain)))
    return HANDLE_PREFIX + packed.decode("ascii").rstrip("=")


def decode_handle(text: str) -> tuple[bytes, ...]:
    """The chain in `text`, of which nothing is verified yet. Raises CapabilityError with step
    `decode` for anything but one spelling of a list of byte strings."""
    data = text.removeprefix(HANDLE_PREFIX)
    try:
        if data == text or len(text) > HANDLE_CHARS_MAX:
            raise ValueError(f"a handle begins with {HANDLE_PREFIX}, of {HANDLE_CHARS_MAX} at most")
        packed = base64.b64decode(data + "=" * (-len(data) % 4), altchars=b"-_", validate=True)
        chain = cbor.decode(packed)
    except (ValueError, binascii.Error, EncodingError) as error:
        raise CapabilityError("decode", f"not the text of a handle: {error}") from error
    if not isinstance(chain, list) or not all(isinstance(link, bytes) for link in chain):
        raise CapabilityError("decode", "not the text of a handle: it is no list of links")
    links = tuple(link for link in chain if isinstance(link, bytes))
    if encode_handle(links) != text:
        raise CapabilityError("decode", "not the text of a handle: another spelling of one")
    return links
