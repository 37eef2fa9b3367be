from __future__ import annotations

import copy
import hashlib
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol import ids
from protocol.blocks import BlockType, Role, text_block
from protocol.errors import ContentError, CorruptObject
from protocol.ids import BlockId, ContextId, ObjectId, TextId, framed_digest
from protocol.record import object_id
from tests.records import RECORDS

KINDS = list(ids.PREFIX_TO_KIND.values())
BLOCK = BlockId.of(b"body")
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def every_subclass(kind: type[ObjectId]) -> set[type[ObjectId]]:
    return {kind}.union(*(every_subclass(child) for child in kind.__subclasses__()))


@pytest.mark.req("ID-3")
def test_the_framing_byte_by_byte() -> None:
    framed = b"\x0e" + b"huginn.block/1" + b"\x00\x00\x00\x00\x00\x00\x00\x04" + b"body"
    assert BLOCK.digest == hashlib.sha256(framed).digest()


@pytest.mark.req("ID-3")
@given(st.text(st.characters(max_codepoint=127), min_size=1, max_size=255), st.binary())
def test_the_digest_is_that_of_the_framing(tag: str, body: bytes) -> None:
    framed = struct.pack(">B", len(tag)) + tag.encode() + struct.pack(">Q", len(body)) + body
    assert framed_digest(tag, body) == hashlib.sha256(framed).digest()


@pytest.mark.req("ID-3")
@given(st.binary(min_size=2, max_size=60), st.data())
def test_where_the_tag_ends_and_the_body_begins_is_part_of_the_id(
    joined: bytes, data: st.DataObject
) -> None:
    joined = bytes(byte & 127 for byte in joined)
    one = data.draw(st.integers(0, len(joined)))
    other = data.draw(st.integers(0, len(joined)))
    assume(one != other)
    first = framed_digest(joined[:one].decode(), joined[one:])
    assert first != framed_digest(joined[:other].decode(), joined[other:])


@pytest.mark.req("ID-3")
def test_one_body_under_every_kind_has_as_many_ids() -> None:
    assert len({kind.of(b"body").digest for kind in KINDS}) == len(KINDS)


def test_kinds_are_told_apart_by_tag_and_by_prefix() -> None:
    assert RECORDS  # every module that could define a kind is imported
    defined = {
        kind for kind in every_subclass(ObjectId) if not kind.__module__.startswith("tests.")
    }
    assert defined - {ObjectId} == set(KINDS)
    assert len({kind.TAG for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert kind.TAG.startswith("huginn.")
        assert kind.TAG.rpartition("/")[2].isdigit(), "a tag ends in its format's version"
        assert kind.TAG.isascii()
        assert len(kind.TAG) < 256
        assert kind.PREFIX.isalpha()
        assert kind.PREFIX.islower()


@every_kind
@given(digest=st.binary(min_size=32, max_size=32))
def test_text_and_id_are_one_to_one(kind: type[ObjectId], digest: bytes) -> None:
    made = kind(digest)
    text = str(made)
    assert len(text) == len(kind.PREFIX) + 1 + 52
    assert kind.parse(text) == ids.parse_any(text) == made
    assert type(ids.parse_any(text)) is kind
    assert bytes(made) == digest


TEXT = str(BLOCK)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("block", id="no colon"),
        pytest.param("block:", id="no digest"),
        pytest.param(TEXT[:-1], id="a character short"),
        pytest.param(TEXT + "a", id="a character long"),
        pytest.param(TEXT.upper(), id="upper case"),
        pytest.param("block:" + TEXT[6:].upper(), id="upper case digest"),
        pytest.param("Block:" + TEXT[6:], id="upper case prefix"),
        pytest.param(TEXT + "====", id="padded"),
        pytest.param(TEXT[:-2] + "==", id="padding inside"),
        pytest.param(" " + TEXT, id="space before"),
        pytest.param(TEXT + "\n", id="line end after"),
        pytest.param(TEXT.replace(":", "::"), id="two colons"),
        pytest.param("block:" + "1" * 52, id="a digit that base32 lacks"),
        pytest.param("block:" + "a" * 51 + "b", id="bits beyond the digest"),
        pytest.param("block:" + "ſ" * 52, id="letters that upper-case to S"),
        pytest.param("block:" + "ß" * 26, id="letters that upper-case to two"),
        pytest.param("ctx:" + TEXT[6:], id="another kind"),
        pytest.param(TEXT[6:], id="digest alone"),
        pytest.param(BLOCK.digest.hex(), id="hexadecimal"),
        pytest.param("README.md", id="a display name"),
    ],
)
def test_only_the_text_that_we_write_is_an_id(text: str) -> None:
    with pytest.raises(ContentError):
        BlockId.parse(text)
    if not text.startswith("ctx:"):
        with pytest.raises(ContentError):
            ids.parse_any(text)


@pytest.mark.parametrize("digest", [b"", b"x" * 31, b"x" * 33, bytearray(32), "x" * 32, None])
def test_only_32_bytes_are_a_digest(digest: object) -> None:
    with pytest.raises(ContentError):
        BlockId(digest)  # type: ignore[arg-type]


@pytest.mark.req("ID-5")
@every_kind
def test_bytes_are_given_back_only_if_they_hash_to_the_id(kind: type[ObjectId]) -> None:
    body = bytes(range(64))
    made = kind.of(body)
    assert made.check(body) is body
    wounded = [
        body[:at] + bytes((body[at] ^ 1 << bit,)) + body[at + 1 :]
        for at in range(64)
        for bit in range(8)
    ]
    for stored in (*wounded, body[:-1], body + b"\x00", b"\x00" + body, b""):
        with pytest.raises(CorruptObject) as caught:
            made.check(stored)
        assert caught.value.details == {"id": str(made)}


@pytest.mark.req("ID-5", "ID-3")
def test_bytes_of_one_kind_do_not_pass_for_another() -> None:
    for kind in KINDS:
        for other in KINDS:
            if other is not kind:
                with pytest.raises(CorruptObject):
                    other(kind.of(b"body").digest).check(b"body")


@pytest.mark.req("ID-5")
def test_a_display_name_is_no_identity() -> None:
    one, two = (
        text_block(Role.USER, BlockType.FILE, text, rendering={"path": "a.py"}, name="alice")
        for text in ("x = 1", "x = 2")
    )
    assert object_id(one) != object_id(two)


def test_an_id_cannot_be_changed() -> None:
    made = BlockId.of(b"body")
    with pytest.raises(AttributeError):
        made.digest = b"y" * 32
    with pytest.raises(AttributeError):
        made.other = 1
    with pytest.raises(AttributeError):
        del made.digest
    assert made == BLOCK


def test_copies_are_equal_and_of_the_same_kind() -> None:
    for made in (copy.copy(BLOCK), copy.deepcopy(BLOCK)):
        assert type(made) is BlockId
        assert made == BLOCK
        assert hash(made) == hash(BLOCK)


def test_ids_of_two_kinds_are_neither_equal_nor_ordered() -> None:
    one, other = BlockId(b"x" * 32), ContextId(b"x" * 32)
    assert one != other
    assert one != b"x" * 32
    assert len({one, other}) == 2
    with pytest.raises(TypeError):
        assert one < other


def test_ids_of_one_kind_sort_by_digest() -> None:
    made = [TextId.of(bytes((number,))) for number in range(50)]
    assert [item.digest for item in sorted(made)] == sorted(item.digest for item in made)


def test_an_id_shows_its_text_and_its_kind() -> None:
    assert repr(BLOCK) == f"BlockId('{BLOCK}')"
