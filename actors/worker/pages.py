"""State digests: what makes "the same state" a claim that can be checked.

    state = StateId of CBOR [page digest of advance 1, …, page digest of advance n]

A page holds the K and V rows of one advance; `protocol/page.py` says what its digest covers.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol import cbor
from protocol.ids import PageId, StateId
from protocol.page import page_digest

__all__ = ["page_digest", "state_digest"]


def state_digest(pages: Iterable[PageId]) -> StateId:
    """The digest of a prefix state: of the pages of all its advances, in order."""
    return StateId.of(cbor.encode([page.digest for page in pages]))
