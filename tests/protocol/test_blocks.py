from __future__ import annotations

import msgspec
import pytest

from protocol import cbor
from protocol.blocks import (
    EXACT_TEXT,
    BlockType,
    ContextBlock,
    Representation,
    Role,
    Source,
    text_block,
)
from protocol.errors import ContentError, RecordError
from protocol.ids import BlockId, ContractId, TextId
from protocol.record import decode_record, encode_record, object_id, to_value
from protocol.tokens import pack

TEXT = TextId.of(b"hello")
CONTRACT = ContractId.of(b"canonicalizer")
BLOCK = text_block(Role.USER, BlockType.USER_TURN, "hello")

# One change for each thing that a block records.
CHANGES = {
    "role": Role.MODEL,
    "type": BlockType.OTHER,
    "source": Source(object=TextId.of(b"hello ")),
    "representation": Representation(kind="reference", of=BlockId.of(b"")),
    "rendering": {"path": "a.py"},
    "trust": False,
    "name": "alice",
}


@pytest.mark.req("ASM-9")
def test_a_block_records_role_type_source_representation_rendering_and_trust() -> None:
    assert cbor.decode(encode_record(BLOCK)) == {
        "v": 1,
        "role": "user",
        "type": "user turn",
        "source": {"object": TEXT.digest},
        "representation": {"kind": "exact-text"},
        "rendering": {},
        "trust": True,
    }
    assert isinstance(object_id(BLOCK), BlockId)


@pytest.mark.req("ASM-9")
@pytest.mark.parametrize("field", CHANGES)
def test_each_part_of_a_block_is_part_of_its_id(field: str) -> None:
    changed = msgspec.structs.replace(BLOCK, **{field: CHANGES[field]})
    assert object_id(changed) != object_id(BLOCK)
    assert decode_record(ContextBlock, encode_record(changed)) == changed


def test_a_change_is_tried_for_every_field() -> None:
    assert {"v", *CHANGES} == {field.name for field in msgspec.structs.fields(ContextBlock)}


@pytest.mark.req("ASM-9")
@pytest.mark.parametrize("field", [name for name in CHANGES if name != "name"])
def test_no_part_may_be_left_out(field: str) -> None:
    value = to_value(BLOCK)
    assert isinstance(value, dict)
    del value[field]
    with pytest.raises(RecordError, match=field):
        decode_record(ContextBlock, cbor.encode(value))


def test_the_roles_and_types_are_those_of_the_design() -> None:
    assert [role.value for role in Role] == ["system", "user", "model", "tool"]
    types = (
        "instruction, user turn, model turn, tool call, tool result, file, symbol, diagnostic, "
        "plan, diff, summary, event reminder, receipt, memory, other"
    )
    assert [kind.value for kind in BlockType] == types.split(", ")


@pytest.mark.req("ASM-9")
def test_rendering_parameters_are_told_apart_by_name_and_by_value() -> None:
    renderings: list[dict[str, str]]
    renderings = [{}, {"path": "a"}, {"title": "a"}, {"path": "b"}, {"path": "a", "title": "a"}]
    blocks = [
        text_block(Role.USER, BlockType.FILE, "hello", rendering=rendering)
        for rendering in renderings
    ]
    assert len({object_id(block) for block in blocks}) == len(renderings)
    # One file shown in two ways is two blocks and one content.
    assert {block.source for block in blocks} == {Source(object=TEXT)}


def test_a_block_keeps_its_rendering_when_the_callers_map_changes() -> None:
    rendering = {"path": "a"}
    block = text_block(Role.USER, BlockType.FILE, "hello", rendering=rendering)
    before = object_id(block)
    rendering["path"] = "b"
    assert object_id(block) == before


@pytest.mark.req("ASM-9")
def test_a_semantic_id_stands_with_its_contract_and_the_object_that_was_rendered() -> None:
    source = Source(object=TEXT, semantic=b"s" * 32, contract=CONTRACT)
    block = msgspec.structs.replace(BLOCK, source=source)
    assert decode_record(ContextBlock, encode_record(block)).source == source
    # The same meaning rendered from another object is another block.
    other = Source(object=TextId.of(b"hello!"), semantic=b"s" * 32, contract=CONTRACT)
    assert object_id(msgspec.structs.replace(BLOCK, source=other)) != object_id(block)


@pytest.mark.req("ASM-9")
@pytest.mark.parametrize(
    "fields",
    [
        {"semantic": b"s" * 32, "contract": CONTRACT.digest},
        {"object": TEXT.digest, "semantic": b"s" * 32},
        {"object": TEXT.digest, "contract": CONTRACT.digest},
        {"object": TEXT.digest, "semantic": b"s" * 31, "contract": CONTRACT.digest},
        {"object": TEXT.digest, "semantic": b"", "contract": CONTRACT.digest},
    ],
    ids=["no object", "no contract", "no semantic id", "too short", "empty"],
)
def test_a_semantic_id_without_what_it_means_is_refused(fields: dict[str, cbor.Value]) -> None:
    with pytest.raises(RecordError):
        decode_record(Source, cbor.encode(fields))


REPRESENTATIONS = [
    EXACT_TEXT,
    Representation(kind="exact-tokens", tokens=pack((2, 107)), tokenizer=CONTRACT),
    Representation(kind="exact-tokens", tokens=b"", tokenizer=CONTRACT),
    Representation(kind="summary-of", of=BlockId.of(b"")),
    Representation(kind="reference", of=BlockId.of(b"")),
]


@pytest.mark.req("ASM-9")
def test_each_representation_is_a_block_of_its_own() -> None:
    blocks = [msgspec.structs.replace(BLOCK, representation=item) for item in REPRESENTATIONS]
    assert len({object_id(block) for block in blocks}) == len(blocks)
    for block in blocks:
        assert decode_record(ContextBlock, encode_record(block)) == block


@pytest.mark.req("ASM-9")
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "exact-text", "tokens": b""},
        {"kind": "exact-text", "of": b"b" * 32},
        {"kind": "exact-tokens"},
        {"kind": "exact-tokens", "tokens": b"\x02\x00\x00\x00"},
        {"kind": "exact-tokens", "tokenizer": CONTRACT.digest},
        {"kind": "exact-tokens", "tokens": b"\x02\x00\x00", "tokenizer": CONTRACT.digest},
        {"kind": "summary-of"},
        {"kind": "reference", "of": b"b" * 32, "tokenizer": CONTRACT.digest},
        {"kind": "gist", "of": b"b" * 32},
    ],
)
def test_a_representation_carries_exactly_what_its_kind_says(fields: dict[str, cbor.Value]) -> None:
    with pytest.raises(RecordError):
        decode_record(Representation, cbor.encode(fields))


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ContentError, match="not Unicode"):
        text_block(Role.USER, BlockType.USER_TURN, "a\ud800")
