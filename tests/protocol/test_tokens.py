from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError
from protocol.tokens import pack, unpack

TOKEN_ID_MAX = 2**32 - 1
IDS = st.lists(st.integers(0, TOKEN_ID_MAX))


def test_ids_are_little_endian() -> None:
    assert pack((1, 256, 262143, TOKEN_ID_MAX)) == bytes.fromhex(
        "01000000 00010000 ffff0300 ffffffff"
    )
    assert pack(()) == b""


@given(IDS)
def test_the_bytes_are_those_of_struct(ids: list[int]) -> None:
    assert pack(ids) == pack(tuple(ids)) == struct.pack(f"<{len(ids)}I", *ids)


@given(IDS)
def test_unpack_undoes_pack(ids: list[int]) -> None:
    assert unpack(pack(ids)) == tuple(ids)


@given(st.binary(max_size=40))
def test_pack_undoes_unpack(data: bytes) -> None:
    if len(data) % 4:
        with pytest.raises(ContentError, match=f"{len(data)} bytes"):
            unpack(data)
    else:
        assert pack(unpack(data)) == data


@pytest.mark.parametrize("wrong", [-1, TOKEN_ID_MAX + 1, 2**64, 2**70, 1.0, "1", None])
def test_only_ids_of_32_bits_are_packed(wrong: object) -> None:
    with pytest.raises(ContentError):
        pack([0, wrong])  # type: ignore[list-item]
