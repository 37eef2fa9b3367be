"""Sealing one section of a private page: XSalsa20-Poly1305 (NaCl secretbox).

    key of a section = BLAKE2b-256(head of the file; key = domain key, person = the section's name)

So a section opens only under its domain's key, beside the very head that it was written with, and
as the section that it is: a head, a section or a name taken from another file opens nothing. Each
section is sealed alone, so that one can be read without the other.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from protocol.errors import ContentError, CorruptObject

Section = Literal["full", "sliding"]
DOMAIN_KEY_BYTES: Final = 32
# A random nonce before the sealed bytes, and the tag that authenticates them.
SEAL_BYTES: Final = SecretBox.NONCE_SIZE + SecretBox.MACBYTES
_PERSON: Final[dict[Section, bytes]] = {"full": b"huginn.pg.full/1", "sliding": b"huginn.pg.slid/1"}


def _box(domain_key: bytes, head: bytes, section: Section) -> SecretBox:
    if type(domain_key) is not bytes or len(domain_key) != DOMAIN_KEY_BYTES:
        raise ContentError(f"a domain key is {DOMAIN_KEY_BYTES} bytes")
    derived = hashlib.blake2b(head, key=domain_key, person=_PERSON[section], digest_size=32)
    return SecretBox(derived.digest())


def seal(body: bytes, section: Section, *, head: bytes, domain_key: bytes) -> bytes:
    """`body` sealed, SEAL_BYTES longer. Raises ContentError for a key of another length."""
    return bytes(_box(domain_key, head, section).encrypt(body))


def unseal(sealed: bytes, section: Section, *, head: bytes, domain_key: bytes) -> bytes:
    """What was sealed. Raises CorruptObject if any bit of it, of the head or of the key differs."""
    box = _box(domain_key, head, section)
    try:
        return box.decrypt(sealed)
    except (CryptoError, ValueError) as error:
        # ValueError: shorter than a nonce.
        raise CorruptObject(f"the {section} section does not open under its key") from error
