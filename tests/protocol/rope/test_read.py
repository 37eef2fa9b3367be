from __future__ import annotations

import pytest

from protocol.errors import CorruptObject, NotVisible, RopeError
from protocol.ids import NodeId
from protocol.rope import build
from protocol.rope.node import Node, Slot, decode_node
from protocol.rope.read import Cursor, Reader, Step, descend
from tests.rope_model import Store, entry, stored


def test_bytes_are_hashed_before_they_are_decoded() -> None:
    store = Store({NodeId.of(b"good"): b"not even CBOR \xff"})
    with pytest.raises(CorruptObject):
        Reader(store).root(NodeId.of(b"good"))


def test_unknown_nodes_are_the_source_s_answer() -> None:
    with pytest.raises(NotVisible):
        Reader(Store()).root(NodeId.of(b"nowhere"))


def test_kept_nodes_are_read_once_and_checked_at_each_place() -> None:
    store = Store()
    open_leaf = store.put(0, [Slot(b"\xff" * 32, 1, 5)])
    reader = Reader(store, kept={})
    reader.load(open_leaf, 0, last=True)
    reader.load(open_leaf, 0, last=True)
    assert len(store.reads) == 1
    with pytest.raises(RopeError, match="open chunk"):
        reader.load(open_leaf, 0, last=False)
    with pytest.raises(RopeError, match="level"):
        reader.load(open_leaf, 1, last=True)


def test_path_leads_to_the_block_and_at_the_end_down_the_right_spine() -> None:
    rope, store = stored([entry(number) for number in range(3000)])
    for position in [0, 1, 777, 2999]:
        steps = descend(Reader(store), rope.top, position)
        assert [step.node.level for step in steps] == list(range(rope.top.level + 1))
        leaf = steps[0]
        assert leaf.node.slots[leaf.index].digest == entry(position).block.digest
    spine = descend(Reader(store), rope.top, 3000)
    assert all(step.last for step in spine)
    assert spine[0].index == len(spine[0].node.slots)
    assert all(step.index == len(step.node.slots) - 1 for step in spine[1:])


def test_cursor_takes_every_slot_of_a_level() -> None:
    rope, store = stored([entry(number) for number in range(3000)])
    reader = Reader(store)
    cursor = Cursor(reader, descend(reader, rope.top, 1234))
    taken = []
    while (slot := cursor.take(0)) is not None:
        taken.append(slot.digest)
    assert taken == [entry(number).block.digest for number in range(1234, 3000)]
    assert cursor.take(0) is None
    assert cursor.at_boundary(0)


def test_cursor_leaves_a_level_at_the_first_unread_node() -> None:
    leaves = Node(1, tuple(Slot(bytes((9, number)) * 16, 1, 0) for number in range(3)))
    leaf = Node(0, (Slot(b"\xff" * 32, 1, 0),))
    for read, expected in [(0, 1), (1, 2)]:
        cursor = Cursor(Reader(Store()), [Step(leaf, read, False), Step(leaves, 1, True)])
        assert cursor.leave(0) is (read > 0)
        slot = cursor.take(1)
        assert slot == leaves.slots[expected]


def test_a_whole_tree_can_be_read_through_its_source_alone() -> None:
    edit = build([entry(number) for number in range(500)])
    reader = Reader(Store(edit.nodes))
    top = reader.root(edit.root)
    assert top == decode_node(edit.nodes[edit.root])
