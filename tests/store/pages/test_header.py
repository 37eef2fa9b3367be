from __future__ import annotations

import hashlib
from typing import Any

import pytest

from protocol.errors import ContentError, CorruptObject
from protocol.record import encode_record
from store.pages.header import (
    HEAD_BYTES_MAX,
    MAGIC,
    PageHeader,
    check_header,
    decode_head,
    domain_digest,
    encode_head,
)
from store.pages.tier import header_of
from tests.page_samples import talk

FIRST, SECOND = (header_of(*each) for each in talk("ann", "a", "b"))


def framed(body: bytes) -> bytes:
    start = MAGIC + len(body).to_bytes(4, "big") + body
    return start + hashlib.sha256(start).digest()


@pytest.mark.parametrize("header", [FIRST, SECOND])
def test_a_head_comes_back_and_says_where_it_ends(header: PageHeader) -> None:
    head = encode_head(header)
    assert len(head) <= HEAD_BYTES_MAX
    assert decode_head(head) == (header, head)
    assert decode_head(head + b"sections") == (header, head)
    assert head == framed(encode_record(header))


def test_heads_never_move() -> None:
    assert hashlib.sha256(encode_head(SECOND)).hexdigest()[:16] == "c4cca42c7d0c2810"


def test_every_wounded_head_is_refused() -> None:
    head = encode_head(SECOND)
    for at in range(len(head)):
        for bit in range(8):
            wounded = head[:at] + bytes((head[at] ^ 1 << bit,)) + head[at + 1 :]
            with pytest.raises(CorruptObject):
                decode_head(wounded)
        with pytest.raises(CorruptObject):
            decode_head(head[:at])


def test_a_well_hashed_record_that_is_no_page_is_refused() -> None:
    fields: dict[str, Any] = {field: getattr(SECOND, field) for field in SECOND.__struct_fields__}
    for change in (
        {"tokens": 0},
        {"start": -1},
        {"start": 0},
        {"parent": None},
        {"full_bytes": 0},
        {"full_bytes": 2**31},
        {"sliding_bytes": -1},
        {"domain": b"short"},
        {"full_digest": b""},
        {"sliding_digest": bytes(33)},
    ):
        header = PageHeader(**{**fields, **change})
        with pytest.raises(ContentError):
            check_header(header)
        with pytest.raises(ContentError):
            encode_head(header)
        with pytest.raises(CorruptObject):
            decode_head(framed(encode_record(header)))
    for body in (b"", b"\xa0", encode_record(SECOND) + b"\x00", b"\xf6"):
        with pytest.raises(CorruptObject):
            decode_head(framed(body))
    with pytest.raises(CorruptObject):
        decode_head(framed(encode_record(SECOND).replace(b"\x61v\x01", b"\x61v\x02")))


def test_a_length_is_not_believed() -> None:
    head = encode_head(FIRST)
    for length in (0, 1025, 2**32 - 1):
        with pytest.raises(CorruptObject):
            decode_head(MAGIC + length.to_bytes(4, "big") + head[12:])


def test_a_domain_is_named_by_its_digest() -> None:
    assert len({domain_digest(name) for name in ("a", "A", "b", "\udc80", "ß" * 127)}) == 5
    assert all(len(domain_digest(name)) == 32 for name in ("a", "x" * 255))
    for name in ("", "x" * 256, "ß" * 128):
        with pytest.raises(ContentError, match="1 to 255 bytes"):
            domain_digest(name)
