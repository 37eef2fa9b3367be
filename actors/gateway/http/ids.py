"""Ids of responses and requests: a prefix and 128 random bits in base32."""

from __future__ import annotations

import base64
from typing import Final

from actors.ports import Entropy

_ID_BYTES: Final = 16


def fresh_id(prefix: str, entropy: Entropy) -> str:
    """A new id: `prefix` and 26 characters of base32."""
    drawn = base64.b32encode(entropy.draw(_ID_BYTES)).decode("ascii")
    return prefix + drawn.rstrip("=").lower()
