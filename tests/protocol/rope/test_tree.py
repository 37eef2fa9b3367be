from __future__ import annotations

import random

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError, LimitExceeded
from protocol.ids import NodeId, PrefixId
from protocol.limits import BLOCKS_MAX
from protocol.rope import Entry, Rope, build, prefix_id
from protocol.rope.node import Slot
from tests.rope_model import Store, draw_entries, entry, never, sequences, stored


@given(sequences(800), st.data())
def test_reads_what_was_built(entries: list[Entry], data: st.DataObject) -> None:
    rope, _ = stored(entries)
    assert rope.count == len(entries)
    assert rope.logical_bytes == sum(size for _, size in entries)
    start = data.draw(st.integers(0, len(entries)))
    stop = data.draw(st.integers(start, len(entries)))
    assert list(rope.entries(start, stop)) == entries[start:stop]
    if start < stop:
        assert rope.get(start) == entries[start]


@pytest.mark.req("SEQ-4")
@given(sequences(800), st.data())
def test_every_boundary_has_the_identity_of_a_fresh_build(
    entries: list[Entry], data: st.DataObject
) -> None:
    rope, _ = stored(entries)
    for blocks in {0, len(entries), data.draw(st.integers(0, len(entries)))}:
        fresh = build(entries[:blocks]).root
        assert rope.prefix_root(blocks) == fresh
        body = cbor2.dumps([blocks, fresh.digest])
        assert rope.prefix_id(blocks) == prefix_id(blocks, fresh) == PrefixId.of(body)


@pytest.mark.req("SEQ-4")
def test_every_single_boundary_of_a_tree_of_three_levels() -> None:
    entries = draw_entries("always closing", 400, 3)
    rope, _ = stored(entries)
    for blocks in range(len(entries) + 1):
        assert rope.prefix_root(blocks) == build(entries[:blocks]).root


@pytest.mark.req("SEQ-2", "SEQ-4")
def test_append_keeps_every_earlier_prefix_identity() -> None:
    entries = draw_entries("distinct", 120, 4)
    rope, store = stored([])
    ids = [rope.prefix_id(0)]
    for number, new in enumerate(entries, 1):
        edit = rope.append([new])
        store.nodes.update(edit.nodes)
        rope = Rope(edit.root, store)
        assert [rope.prefix_id(blocks) for blocks in range(number)] == ids
        ids.append(rope.prefix_id(number))
    assert len(set(ids)) == 121


@pytest.mark.req("SEQ-4")
def test_reads_grow_with_the_depth_not_with_the_length() -> None:
    for count in [100, 1000, 10_000, 60_000]:
        rope, store = stored([entry(number) for number in range(count)])
        depth = rope.top.level
        assert depth <= 4
        draw = random.Random(count)
        for _ in range(30):
            index = draw.randrange(count)
            for ask in (rope.get, rope.prefix_root):
                store.reads.clear()
                ask(index)
                # One path without its root, which the rope holds; and, where a cut leaves one
                # node at the top, that node.
                assert len(store.reads) <= depth + (ask == rope.prefix_root)


def test_a_range_reads_its_own_leaves_only() -> None:
    rope, store = stored([entry(number) for number in range(20_000)])
    assert len(list(rope.entries(10_000, 10_100))) == 100
    assert len(store.reads) < 20
    store.reads.clear()
    list(rope.entries(500, 500))
    assert store.reads == []
    for number, got in enumerate(rope.entries(19_990)):
        assert got == entry(19_990 + number)


def test_reading_changes_nothing() -> None:
    rope, store = stored([entry(number) for number in range(1000)])
    before = dict(store.nodes)
    rope.get(5)
    rope.prefix_id(500)
    rope.splice(1, 2, [])
    assert store.nodes == before
    assert rope.splice(500, 500, []) == (rope.root, {})


@pytest.mark.parametrize(
    "ask",
    [
        lambda rope: rope.get(10),
        lambda rope: rope.get(-1),
        lambda rope: rope.entries(3, 2),
        lambda rope: rope.entries(0, 11),
        lambda rope: rope.splice(-1, 2, []),
        lambda rope: rope.splice(5, 11, []),
        lambda rope: rope.prefix_root(11),
        lambda rope: rope.prefix_id(-1),
    ],
)
def test_blocks_that_are_not_there_are_refused(ask: object) -> None:
    rope, _ = stored([entry(number) for number in range(10)])
    with pytest.raises(ContentError, match="10 blocks"):
        ask(rope)  # type: ignore[operator]


def test_longest_sequence_takes_no_further_block() -> None:
    # BLOCKS_MAX blocks in a tree of a few nodes: full chunks of one block that never closes.
    store = Store()
    slots = [Slot(never().block.digest, 1, 7)] * BLOCKS_MAX
    level = 0
    while len(slots) > 1:
        made = {}
        chunks = [tuple(slots[at : at + 128]) for at in range(0, len(slots), 128)]
        for chunk in set(chunks):
            made[chunk] = store.put(level, chunk)
        slots = [made[chunk] for chunk in chunks]
        level += 1
    rope = Rope(NodeId(slots[0].digest), store)
    assert rope.count == BLOCKS_MAX
    with pytest.raises(LimitExceeded, match="at most"):
        rope.append([never()])
    assert rope.splice(5, 6, [never()]) == (rope.root, {})
