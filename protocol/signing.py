"""Ed25519 signatures: libsodium, through calls that cannot be misused.

PyNaCl's `verify(message, None)` takes the first 64 bytes of attacker's bytes for the signature,
and a wrong length raises another exception than a bad signature. `verify` here takes exactly
32 + any + 64 bytes and answers yes or no. libsodium refuses S >= L, small-order keys and R, and
non-canonical points (RFC 8032 §5.1.7; the Wycheproof and speccheck vectors are tests).

What is signed is always a context that ends in a zero byte, then the payload, so that bytes signed
as one kind never verify as another. On the wire a signed payload is `[payload, signature]`: the
payload is verified as received and never re-encoded first.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from protocol import cbor
from protocol.errors import ContentError, RecordError

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
NONCE_BYTES: Final = 16
# A shorter API key could be found by trying keys against the public key that it derives.
API_KEY_CHARS_MIN: Final = 16
_PRINCIPAL_INFO: Final = b"huginn.principal/1"


class Signer:
    """A private key. `public` is its 32-byte public key; the seed is never given back."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        """`seed`: 32 secret bytes. Raises ContentError for anything else."""
        if type(seed) is not bytes or len(seed) != SEED_BYTES:
            raise ContentError(f"a signing seed is exactly {SEED_BYTES} bytes")
        self._key = SigningKey(seed)
        self.public = bytes(self._key.verify_key)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte detached signature of `message`, which begins with its context."""
        return self._key.sign(message).signature

    def __repr__(self) -> str:
        return f"Signer(public={self.public.hex()})"


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` (64 bytes) is `public`'s (32 bytes) over `message`. Never raises."""
    if type(public) is not bytes or type(message) is not bytes or type(signature) is not bytes:
        return False
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(public).verify(message, signature)
    except BadSignatureError:
        return False
    return True


def is_public_key(public: bytes) -> bool:
    """Whether `public` is the one encoding of a point of the prime-order group.

    Keys of small or mixed order and non-canonical encodings are not: with them one signature can
    stand for two messages, or one key have two names.
    """
    if type(public) is not bytes or len(public) != PUBLIC_BYTES:
        return False
    return bool(crypto_core_ed25519_is_valid_point(public))


def principal_seed(api_key: str) -> bytes:
    """The 32-byte signing seed of the principal who holds `api_key`.

    HKDF-SHA256 (RFC 5869) without salt, info "huginn.principal/1". Whoever keeps only a hash of
    the key cannot sign for the principal. Raises ContentError for a key under 16 characters.
    """
    if len(api_key) < API_KEY_CHARS_MIN:
        raise ContentError(
            f"an API key has at least {API_KEY_CHARS_MIN} characters, this one {len(api_key)}"
        )
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), api_key.encode(), "sha256")
    return hmac.digest(extracted, _PRINCIPAL_INFO + b"\x01", "sha256")


class Signed(NamedTuple):
    """A payload as received and its signature, not verified yet."""

    payload: bytes
    signature: bytes


def pack_signed(signer: Signer, context: bytes, payload: bytes) -> bytes:
    """`[payload, signature of context ‖ payload]`, encoded."""
    return cbor.encode([payload, signer.sign(context + payload)])


def unpack_signed(data: bytes, *, size_max: int) -> Signed:
    """The two parts of `data`, whose signature is still to be verified.

    Raises EncodingError as `cbor.decode` does, RecordError for any other shape.
    """
    match cbor.decode(data, size_max=size_max):
        case [bytes() as payload, bytes() as signature] if len(signature) == SIGNATURE_BYTES:
            return Signed(payload, signature)
        case _:
            raise RecordError(f"a signed record is [payload, {SIGNATURE_BYTES} bytes of signature]")
