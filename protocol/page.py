"""A page: the K and V rows of one advance, and the digest that makes "the same rows" checkable.

A page has two sections, each hashed by itself, because a restore needs the full-attention rows of
every page but the sliding rows of the last window only, and has to verify what it reads:

    page = PageId of CBOR [SHA-256(full section), SHA-256(sliding section)]
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from protocol import cbor
from protocol.ids import PageId


@dataclass(frozen=True, slots=True)
class PageRows:
    """The K and V rows of a run of positions, all layers, in one canonical order.

    `full` holds the full-attention layers, `sliding` the sliding-window layers (empty for a model
    that has none, and in a page of which a restore needs no sliding row): for each layer in order
    its K rows then its V rows, each row one position.
    """

    full: bytes
    sliding: bytes


def section_digest(section: bytes) -> bytes:
    """The 32-byte digest of one section."""
    return hashlib.sha256(section).digest()


def page_of_sections(full_digest: bytes, sliding_digest: bytes) -> PageId:
    """The digest of the page whose sections have these digests."""
    return PageId.of(cbor.encode([full_digest, sliding_digest]))


def page_digest(rows: PageRows) -> PageId:
    """The digest of one page's bytes."""
    return page_of_sections(section_digest(rows.full), section_digest(rows.sliding))
