from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.errors import CorruptObject, NotVisible, RopeError
from protocol.ids import NodeId
from protocol.rope import EMPTY_ID, Entry, Rope, build, check
from protocol.rope.node import EMPTY_BYTES, Slot
from tests.rope_model import Store, always, draw_entries, entry, never

OPEN = Slot(never().block.digest, 1, 7)
CLOSING = Slot(always().block.digest, 1, 9)


def test_empty_sequence_is_a_whole_tree() -> None:
    checked = check(EMPTY_ID, Store({EMPTY_ID: EMPTY_BYTES}))
    assert (checked.count, checked.logical_bytes, checked.level) == (0, 0, 0)
    assert checked.nodes == {EMPTY_ID}


def test_right_tree_by_hand_is_accepted() -> None:
    store = Store()
    closed = store.put(0, [OPEN, CLOSING])
    root = store.put(1, [closed, store.put(0, [OPEN])])
    checked = check(NodeId(root.digest), store)
    assert (checked.count, checked.logical_bytes, checked.level) == (3, 23, 1)


def test_tree_of_repeats_is_read_once_for_each_node() -> None:
    edit = build([never()] * 100_000)
    store = Store(edit.nodes)
    assert check(edit.root, store).count == 100_000
    # A node that also stands last is read at both places.
    assert len(store.reads) <= 2 * len(edit.nodes)


def _open_inner_chunk(store: Store) -> Slot:
    return store.put(1, [store.put(0, [OPEN, OPEN]), store.put(0, [OPEN])])


def _open_inner_chunk_on_level_1(store: Store) -> Slot:
    leaf = store.put(0, [OPEN, CLOSING])
    assert leaf.digest[0] >= 8, "the leaf's id must not close a chunk"
    return store.put(2, [store.put(1, [leaf, leaf]), store.put(1, [leaf])])


def _open_chunk_after_a_right_one(store: Store) -> Slot:
    closed, open_leaf = store.put(0, [OPEN, CLOSING]), store.put(0, [OPEN])
    return store.put(1, [closed, open_leaf, closed])


def _open_chunk_at_the_end_of_an_inner_node(store: Store) -> Slot:
    closed, open_leaf = store.put(0, [OPEN, CLOSING]), store.put(0, [OPEN])
    return store.put(2, [store.put(1, [closed] * 127 + [open_leaf]), store.put(1, [closed])])


def _over_long_chunk(store: Store) -> Slot:
    return store.put(0, [OPEN] * 129)


def _chunk_past_its_boundary(store: Store) -> Slot:
    return store.put(0, [OPEN, CLOSING, OPEN])


def _single_child_root(store: Store) -> Slot:
    return store.put(1, [store.put(0, [OPEN, CLOSING])])


def _extra_nesting(store: Store) -> Slot:
    pair = [store.put(0, [OPEN, CLOSING]), store.put(0, [OPEN])]
    return store.put(2, [store.put(1, pair)])


def _empty_inner_node(store: Store) -> Slot:
    return store.put(1, [store.put(0, [OPEN, CLOSING]), store.put(0, [])._replace(blocks=1)])


def _empty_root_on_level_1(store: Store) -> Slot:
    return store.put(1, [])


def _level_skipped(store: Store) -> Slot:
    closed = store.put(0, [OPEN, CLOSING])
    return store.put(2, [closed, closed])


def _level_repeated(store: Store) -> Slot:
    closed = store.put(0, [OPEN, CLOSING])
    inner = store.put(1, [closed, closed])
    return store.put(1, [inner, inner])


def _more_blocks_claimed(store: Store) -> Slot:
    closed = store.put(0, [OPEN, CLOSING])
    return store.put(1, [closed, closed._replace(blocks=3)])


def _fewer_bytes_claimed(store: Store) -> Slot:
    closed = store.put(0, [OPEN, CLOSING])
    return store.put(1, [closed._replace(logical_bytes=0), closed])


def _wrong_sums_deep_down(store: Store) -> Slot:
    closed = store.put(0, [OPEN, CLOSING])
    lied = store.put(1, [closed, closed._replace(logical_bytes=15)])
    return store.put(2, [store.put(1, [closed] * 128), lied])


def _same_node_right_once_and_wrong_once(store: Store) -> Slot:
    open_leaf = store.put(0, [OPEN])
    return store.put(1, [open_leaf, open_leaf])


SHAPES = [
    _open_inner_chunk,
    _open_inner_chunk_on_level_1,
    _open_chunk_after_a_right_one,
    _open_chunk_at_the_end_of_an_inner_node,
    _over_long_chunk,
    _chunk_past_its_boundary,
    _single_child_root,
    _extra_nesting,
    _empty_inner_node,
    _empty_root_on_level_1,
    _level_skipped,
    _level_repeated,
    _more_blocks_claimed,
    _fewer_bytes_claimed,
    _wrong_sums_deep_down,
    _same_node_right_once_and_wrong_once,
]


@pytest.mark.req("SEQ-1", "SEQ-5")
@pytest.mark.parametrize("shape", SHAPES)
def test_every_other_shape_is_refused(shape: Callable[[Store], Slot]) -> None:
    store = Store()
    root = NodeId(shape(store).digest)
    with pytest.raises(RopeError):
        check(root, store)
    # Reading it block by block meets the same checks, by a walk and by paths.
    with pytest.raises(RopeError):
        list(Rope(root, store).entries())
    with pytest.raises(RopeError):
        _read_by_paths(root, store)


def _read_by_paths(root: NodeId, store: Store) -> list[Entry]:
    rope = Rope(root, store)
    return [rope.get(index) for index in range(rope.count)]


@pytest.mark.req("SEQ-1")
def test_regrouped_chunks_are_refused() -> None:
    entries = [entry(number) for number in range(300)]
    slots = [Slot(block.digest, 1, size) for block, size in entries]
    for width in (1, 2, 7, 64, 127):
        store = Store()
        leaves = [store.put(0, slots[at : at + width]) for at in range(0, 300, width)]
        root = store.put(1, leaves[:128])
        with pytest.raises(RopeError):
            check(NodeId(root.digest), store)


def test_changed_and_missing_nodes_are_found() -> None:
    edit = build(draw_entries("distinct", 2000, 1))
    for node in edit.nodes:
        changed = dict(edit.nodes)
        changed[node] = changed[node][:-1] + bytes((changed[node][-1] ^ 1,))
        with pytest.raises(CorruptObject):
            check(edit.root, Store(changed))
        del changed[node]
        with pytest.raises(NotVisible):
            check(edit.root, Store(changed))
