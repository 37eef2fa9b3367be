from __future__ import annotations

import pytest

from protocol.errors import ContentError
from protocol.page import PageRows, page_digest
from store.pages.header import domain_digest
from store.pages.tier import PUBLIC, PUBLIC_DIGEST, header_of, info_of
from tests.page_samples import talk


def test_a_header_says_all_of_a_page_but_its_domain_in_clear() -> None:
    page, rows = talk("ann", "a", "b")[1]
    header = header_of(page, rows)
    assert header.domain == domain_digest("ann")
    info = info_of("ann", header)
    assert info.page == page
    assert info.digest == page_digest(rows)
    assert (info.full_bytes, info.sliding_bytes) == (len(rows.full), len(rows.sliding))
    assert domain_digest(PUBLIC) == PUBLIC_DIGEST


def test_a_page_that_cannot_be_has_no_header() -> None:
    page, _ = talk("ann", "a")[0]
    with pytest.raises(ContentError, match="full one is not empty"):
        header_of(page, PageRows(full=b"", sliding=b""))
