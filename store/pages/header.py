"""The head of a page file: which page this is, and how long its sections are.

    8    magic, the last byte of which is the version
    4    u32be: bytes of the header
    n    the header, a record (deterministic CBOR)
    32   SHA-256 of all that stands before
    …    the full section, then the sliding section, to the end of the file

The header is in the clear, so that an index is rebuilt without a key. It names the domain by its
digest only. A private section is sealed under a key derived from these very bytes (`seal.py`), so
a header changed by one bit opens nothing.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

from protocol.errors import ContentError, CorruptObject, RequestError
from protocol.ids import DIGEST_BYTES, ChainId, ProfileId, framed_digest
from protocol.record import Record, decode_record, encode_record

MAGIC: Final = b"HGNPAGE\x01"
# A header has about 400 bytes; the bound keeps a wrong length from being believed.
HEADER_BYTES_MAX: Final = 1024
_LENGTH_BYTES: Final = 4
_FIXED_BYTES: Final = len(MAGIC) + _LENGTH_BYTES + DIGEST_BYTES
# No head is longer: what a reader asks for first.
HEAD_BYTES_MAX: Final = _FIXED_BYTES + HEADER_BYTES_MAX
# One section: 256 tokens of the largest Gemma take about 130 MB.
SECTION_BYTES_MAX: Final = 2**30
DOMAIN_BYTES_MAX: Final = 255


class PageHeader(Record):
    """What identifies a page and its bytes. `domain` is the domain's digest; `start` and `tokens`
    are positions; the digests are SHA-256 of the sections before they were sealed."""

    v: Literal[1]
    domain: bytes
    chain: ChainId
    profile: ProfileId
    start: int
    tokens: int
    full_bytes: int
    full_digest: bytes
    sliding_bytes: int
    sliding_digest: bytes
    parent: ChainId | None = None


def domain_digest(domain: str) -> bytes:
    """The 32 bytes that stand for a domain on disk; raises ContentError for an unusable name."""
    name = domain.encode("utf-8", "surrogatepass")
    if not 1 <= len(name) <= DOMAIN_BYTES_MAX:
        raise ContentError(f"a domain has 1 to {DOMAIN_BYTES_MAX} bytes, not {len(name)}")
    return framed_digest("huginn.domain/1", name)


def check_header(header: PageHeader) -> PageHeader:
    """`header`, if such a page can be; raises ContentError."""
    if not (len(header.domain) == len(header.full_digest) == len(header.sliding_digest) == 32):
        raise ContentError("a page's digests have 32 bytes")
    # The bound above keeps every sum of two of them an int that a database column takes.
    if not (0 <= header.start < 2**40 and 1 <= header.tokens < 2**40):
        raise ContentError(f"a page of {header.tokens} tokens from {header.start} on cannot be")
    if (header.start == 0) != (header.parent is None):
        raise ContentError(f"a page at {header.start}: it has a parent unless it is the first")
    if not (
        1 <= header.full_bytes <= SECTION_BYTES_MAX
        and 0 <= header.sliding_bytes <= SECTION_BYTES_MAX
    ):
        raise ContentError(
            f"sections of {header.full_bytes} and {header.sliding_bytes} bytes: the full one is "
            f"not empty, and {SECTION_BYTES_MAX} is the most"
        )
    return header


def encode_head(header: PageHeader) -> bytes:
    """The bytes of a file before its sections. Raises EncodingError, ContentError."""
    body = encode_record(check_header(header), size_max=HEADER_BYTES_MAX)
    framed = MAGIC + len(body).to_bytes(_LENGTH_BYTES, "big") + body
    return framed + hashlib.sha256(framed).digest()


def decode_head(data: bytes) -> tuple[PageHeader, bytes]:
    """The header with which a file begins, and the head's bytes; what follows them is not read.

    `data` is the first HEAD_BYTES_MAX bytes of the file, or all of a shorter one. Raises
    CorruptObject unless it begins with exactly what `encode_head` writes.
    """
    if not data.startswith(MAGIC):
        raise CorruptObject("not a page file, or one of another version")
    at = len(MAGIC) + _LENGTH_BYTES
    length = int.from_bytes(data[len(MAGIC) : at], "big")
    end = at + length
    if length > HEADER_BYTES_MAX or end + DIGEST_BYTES > len(data):
        raise CorruptObject(f"a header of {length} bytes does not fit")
    if hashlib.sha256(data[:end]).digest() != data[end : end + DIGEST_BYTES]:
        raise CorruptObject("the header does not hash to its digest")
    try:
        header = check_header(decode_record(PageHeader, data[at:end]))
    except RequestError as error:
        raise CorruptObject(f"the header is not a page's: {error}") from error
    return header, data[: end + DIGEST_BYTES]
