"""A page's digest covers every byte, and where the two sections part."""

from __future__ import annotations

import hashlib

from protocol import cbor
from protocol.ids import PageId
from protocol.page import PageRows, page_digest, page_of_sections, section_digest


def test_a_page_digest_is_what_its_docstring_says() -> None:
    rows = PageRows(full=b"abc", sliding=b"d")
    sections = [hashlib.sha256(b"abc").digest(), hashlib.sha256(b"d").digest()]
    assert page_digest(rows) == PageId.of(cbor.encode(list(sections)))
    assert page_digest(rows) == page_of_sections(*sections)
    assert section_digest(b"abc") == sections[0]


def test_a_page_digest_covers_both_sections_and_their_bound() -> None:
    rows = [
        PageRows(full=b"abc", sliding=b"d"),
        PageRows(full=b"ab", sliding=b"cd"),
        PageRows(full=b"abcd", sliding=b""),
        PageRows(full=b"", sliding=b"abcd"),
        PageRows(full=b"abc", sliding=b"e"),
    ]
    assert len({page_digest(page) for page in rows}) == len(rows)


def test_page_digests_never_move() -> None:
    assert (
        str(page_digest(PageRows(full=b"full", sliding=b"sliding")))
        == "page:bmtdhicddkbbkim54upjyg2d6gvh5erggtfvguttezw4ih4euugq"
    )
