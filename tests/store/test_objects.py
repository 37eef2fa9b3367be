from __future__ import annotations

import pytest

from protocol.errors import ContentError, CorruptObject
from protocol.ids import BlockId, ObjectId, TextId
from store.objects import (
    check_ids,
    check_name,
    check_objects,
    check_view,
    head_conflict,
    not_visible,
)


def test_a_name_comes_back_as_it_is() -> None:
    assert check_name("tenants/é/1") == "tenants/é/1"
    assert check_name("x" * 512) == "x" * 512


def test_a_view_comes_back_as_it_is() -> None:
    assert check_view(("a", "b")) == ("a", "b")
    assert check_view(frozenset({"a"})) == frozenset({"a"})


def test_a_kind_that_is_not_listed_is_refused() -> None:
    class OtherId(ObjectId):
        TAG, PREFIX = "huginn.text/1", "text"

    check_ids([TextId.of(b"")])
    with pytest.raises(ContentError, match="OtherId"):
        check_ids([OtherId.of(b"")])
    with pytest.raises(ContentError):
        check_ids([TextId])  # type: ignore[list-item]


@pytest.mark.req("ID-5")
@pytest.mark.parametrize("flip", range(0, 8 * 5, 3))
def test_every_flipped_bit_is_found_before_storing(flip: int) -> None:
    body = bytearray(b"hello")
    body[flip // 8] ^= 1 << flip % 8
    check_objects([(BlockId.of(b"hello"), b"hello")])
    with pytest.raises(CorruptObject):
        check_objects([(BlockId.of(b"hello"), bytes(body))])


def test_errors_name_the_ids() -> None:
    id = TextId.of(b"x")
    assert not_visible(id).details == {"id": str(id)}
    assert "nothing, not to text:" in head_conflict("n", "main", id, None).message
