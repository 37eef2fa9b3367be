from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError, RopeError
from protocol.ids import BlockId, NodeId, TextId
from protocol.limits import BLOCKS_MAX, CONTENT_BYTES_MAX
from protocol.rope.node import (
    CHUNK_SLOTS_MAX,
    EMPTY_BYTES,
    EMPTY_ID,
    LEVEL_MAX,
    NODE_BYTES_MAX,
    Node,
    Slot,
    check_place,
    check_root,
    closes,
    decode_node,
    encode_node,
    to_entry,
    to_slots,
)
from tests.rope_model import always, entry, never

OPEN = b"\xff" * 32
CLOSING = bytes(32)


def raw(level: object, rows: object, name: object = "huginn.rope/1") -> bytes:
    return cbor2.dumps([name, level, rows])


@pytest.mark.req("SEQ-1")
def test_empty_sequence_is_one_frozen_node() -> None:
    assert EMPTY_BYTES.hex() == "836d687567696e6e2e726f70652f310080"
    assert NodeId.of(EMPTY_BYTES) == EMPTY_ID
    assert decode_node(EMPTY_BYTES) == Node(0, ())


@pytest.mark.parametrize(
    ("first_bytes", "closing"),
    [
        ("00000000", True),
        ("07ffffff", True),
        ("08000000", False),
        ("ffffffff", False),
        # The same numbers in little-endian order would say the opposite.
        ("ffffff07", False),
        ("00000008", True),
    ],
)
def test_boundary_is_the_first_32_bits_big_endian(first_bytes: str, closing: bool) -> None:
    digest = bytes.fromhex(first_bytes) + bytes(28)
    assert not closes(1, digest)
    assert closes(2, digest) is closing
    assert closes(127, digest) is closing
    assert closes(128, digest)


@pytest.mark.req("SEQ-5")
def test_sums_are_in_the_encoding_and_so_in_the_id() -> None:
    slots = (Slot(OPEN, 3, 40), Slot(CLOSING, 4, 2))
    node = Node(1, slots)
    assert (node.blocks, node.logical_bytes) == (7, 42)
    assert encode_node(node) == raw(1, [[OPEN, 3, 40], [CLOSING, 4, 2]])
    other = encode_node(Node(1, (Slot(OPEN, 3, 41), slots[1])))
    assert NodeId.of(encode_node(node)) != NodeId.of(other)
    # The level is inside too: a leaf cannot pass for an inner node.
    assert NodeId.of(raw(0, [[OPEN, 1, 40]])) != NodeId.of(raw(1, [[OPEN, 1, 40]]))


def test_full_node_is_within_the_size_cap() -> None:
    full = Node(
        LEVEL_MAX,
        tuple(Slot(OPEN, BLOCKS_MAX, BLOCKS_MAX * CONTENT_BYTES_MAX) for _ in range(128)),
    )
    assert len(encode_node(full)) <= NODE_BYTES_MAX
    assert decode_node(encode_node(full)) == full


REFUSED = {
    "not an array": cbor2.dumps({"level": 0}),
    "two items": cbor2.dumps(["huginn.rope/1", 0]),
    "another format": raw(0, [], "huginn.rope/2"),
    "level below 0": raw(-1, []),
    "level over the cap": raw(LEVEL_MAX + 1, [[OPEN, 1, 1], [OPEN, 1, 1]]),
    "level is no integer": raw(True, []),
    "slots are no array": raw(0, {}),
    "slot of two": raw(0, [[OPEN, 1]]),
    "slot of four": raw(0, [[OPEN, 1, 1, 1]]),
    "short id": raw(0, [[OPEN[1:], 1, 1]]),
    "id is text": raw(0, [["f" * 32, 1, 1]]),
    "two blocks in a block": raw(0, [[OPEN, 2, 1]]),
    "no block": raw(0, [[OPEN, 0, 1]]),
    "count is no integer": raw(0, [[OPEN, True, 1]]),
    "no block below": raw(1, [[OPEN, 0, 0]]),
    "too many blocks below": raw(1, [[OPEN, BLOCKS_MAX + 1, 0]]),
    "bytes below 0": raw(0, [[OPEN, 1, -1]]),
    "bytes no content has": raw(0, [[OPEN, 1, CONTENT_BYTES_MAX + 1]]),
    "bytes no contents have": raw(1, [[OPEN, 2, 2 * CONTENT_BYTES_MAX + 1]]),
    "bytes are no integer": raw(0, [[OPEN, 1, False]]),
    "over-long chunk": raw(0, [[OPEN, 1, 1]] * (CHUNK_SLOTS_MAX + 1)),
    "chunk that should have closed": raw(0, [[OPEN, 1, 1], [CLOSING, 1, 1], [OPEN, 1, 1]]),
    "chunk that should have closed at its second": raw(0, [[CLOSING, 1, 1]] * 3),
    "non-shortest head": bytes.fromhex("836d687567696e6e2e726f70652f31180080"),
    "trailing byte": EMPTY_BYTES + b"\0",
    "cut short": EMPTY_BYTES[:-1],
    "no bytes": b"",
    "over the size cap": bytes(NODE_BYTES_MAX + 1),
}


@pytest.mark.req("SEQ-1")
@pytest.mark.parametrize("case", sorted(REFUSED))
def test_everything_else_is_refused(case: str) -> None:
    with pytest.raises(RopeError):
        decode_node(REFUSED[case])


def test_closing_first_slot_does_not_close() -> None:
    node = Node(0, (Slot(CLOSING, 1, 0), Slot(CLOSING, 1, 0)))
    assert decode_node(encode_node(node)) == node


ROWS = st.lists(
    st.tuples(st.sampled_from([OPEN, CLOSING, OPEN[1:]]), st.integers(-1, 3), st.integers(-1, 9)),
    max_size=5,
)


@given(
    st.binary(max_size=200)
    | st.builds(raw, st.integers(-1, 3), ROWS)
    | st.builds(
        lambda data, at, byte: data[: at % len(data)] + bytes((byte,)) + data[at % len(data) + 1 :],
        st.builds(raw, st.integers(0, 3), ROWS),
        st.integers(0, 10_000),
        st.integers(0, 255),
    )
)
def test_any_bytes_are_one_node_or_refused(data: bytes) -> None:
    try:
        node = decode_node(data)
    except RopeError:
        return
    assert encode_node(node) == data


@pytest.mark.req("SEQ-1")
def test_root_is_the_lowest_level_with_one_node() -> None:
    check_root(Node(0, ()))
    check_root(Node(0, (Slot(OPEN, 1, 1),)))
    check_root(Node(1, (Slot(OPEN, 5, 1), Slot(OPEN, 1, 1))))
    for slots in [(), (Slot(OPEN, 5, 1),)]:
        with pytest.raises(RopeError):
            check_root(Node(1, slots))
    with pytest.raises(RopeError):
        check_root(Node(1, (Slot(OPEN, BLOCKS_MAX, 1), Slot(OPEN, 1, 1))))


@pytest.mark.req("SEQ-1", "SEQ-5")
def test_place_is_checked() -> None:
    node = Node(0, (Slot(OPEN, 1, 4), Slot(OPEN, 1, 5)))
    right = Slot(OPEN, 2, 9)
    check_place(node, right, 0, last=True)
    closed = Node(0, (Slot(OPEN, 1, 4), Slot(CLOSING, 1, 5)))
    check_place(closed, right, 0, last=False)
    for wrong_node, slot, level, last in [
        (node, right, 1, True),
        (node, right, 0, False),
        (node, Slot(OPEN, 3, 9), 0, True),
        (node, Slot(OPEN, 2, 8), 0, True),
        (Node(0, ()), Slot(OPEN, 0, 0), 0, True),
    ]:
        with pytest.raises(RopeError):
            check_place(wrong_node, slot, level, last=last)


def test_entries_and_slots_are_the_same_thing() -> None:
    entries = [entry(1), never(), always()]
    assert [to_entry(slot) for slot in to_slots(entries)] == entries


@pytest.mark.parametrize(
    "wrong",
    [
        (BlockId(OPEN), -1),
        (BlockId(OPEN), CONTENT_BYTES_MAX + 1),
        (BlockId(OPEN), True),
        (TextId(OPEN), 1),
        (OPEN, 1),
    ],
)
def test_what_is_no_entry_is_refused(wrong: tuple[object, object]) -> None:
    with pytest.raises(ContentError):
        to_slots([wrong])  # type: ignore[list-item]
