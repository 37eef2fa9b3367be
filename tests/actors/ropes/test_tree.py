"""A rope laid out for people: every node once in its place, and only sound ones."""

from __future__ import annotations

import pytest
from hypothesis import given

from actors.ropes.tree import tree_nodes
from protocol.errors import CorruptObject, NotVisible
from protocol.ids import NodeId
from protocol.rope import Entry, build
from protocol.rope.node import EMPTY_BYTES, EMPTY_ID, decode_node
from tests.rope_model import Store, entry, naive_build, sequences


@given(sequences(400))
def test_the_layout_is_the_tree(entries: list[Entry]) -> None:
    root, nodes = naive_build(entries)
    store = Store(nodes)
    laid_out = tree_nodes(root, store)
    assert laid_out[0].node == root
    assert laid_out[0].blocks == len(entries)
    assert laid_out[0].content_bytes == sum(size for _, size in entries)
    # The leaves, left to right, hold the sequence.
    leaves = [child for node in laid_out if node.level == 0 for child in node.children]
    assert leaves == [block.digest for block, _ in entries]
    # Depth first: behind a node comes its first child, and its last child's subtree ends it.
    stack: list[bytes] = [root.digest]
    for node in laid_out:
        assert stack.pop() == node.node.digest
        decoded = decode_node(nodes[node.node])
        assert [slot.digest for slot in decoded.slots] == node.children
        assert (decoded.level, decoded.blocks) == (node.level, node.blocks)
        assert decoded.logical_bytes == node.content_bytes
        if node.level:
            stack.extend(reversed(node.children))
    assert stack == []


def test_nothing_is_one_empty_node() -> None:
    (only,) = tree_nodes(EMPTY_ID, Store({EMPTY_ID: EMPTY_BYTES}))
    assert (only.level, only.blocks, only.content_bytes, only.children) == (0, 0, 0, [])


def test_a_node_that_is_gone_or_damaged_is_not_shown() -> None:
    edit = build([entry(number) for number in range(200)])
    leaf = next(node for node, data in edit.nodes.items() if decode_node(data).level == 0)
    without = {node: data for node, data in edit.nodes.items() if node != leaf}
    with pytest.raises(NotVisible):
        tree_nodes(edit.root, Store(without))
    with pytest.raises(CorruptObject):
        tree_nodes(edit.root, Store({**without, leaf: EMPTY_BYTES}))
    with pytest.raises(NotVisible):
        tree_nodes(NodeId(b"x" * 32), Store())
