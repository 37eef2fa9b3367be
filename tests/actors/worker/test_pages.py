"""Digests cover every byte, and where the two sections part."""

from __future__ import annotations

from actors.worker.backend import PageRows
from actors.worker.pages import page_digest, state_digest
from protocol.ids import PageId


def test_a_page_digest_covers_both_sections_and_their_bound() -> None:
    rows = [
        PageRows(full=b"abc", sliding=b"d"),
        PageRows(full=b"ab", sliding=b"cd"),
        PageRows(full=b"abcd", sliding=b""),
        PageRows(full=b"", sliding=b"abcd"),
        PageRows(full=b"abc", sliding=b"e"),
    ]
    assert len({page_digest(page) for page in rows}) == len(rows)
    assert page_digest(rows[0]) == page_digest(PageRows(full=b"abc", sliding=b"d"))


def test_a_state_digest_covers_every_page_in_order() -> None:
    a, b = PageId.of(b"a"), PageId.of(b"b")
    states = [[], [a], [b], [a, b], [b, a], [a, a]]
    assert len({state_digest(pages) for pages in states}) == len(states)
