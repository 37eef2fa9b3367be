from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.ids import NodeId
from protocol.rope import EMPTY_ID, Entry, Rope, build, check
from protocol.rope.node import CHUNK_SLOTS_MAX, closes, decode_node
from tests.rope_model import POOLS, Store, draw_entries, entry, never, sequences, stored


class Editing(RuleBasedStateMachine):
    """Every edit, in every order, on every kind of content, equals a fresh build."""

    def __init__(self) -> None:
        super().__init__()
        self.flat: list[Entry] = []
        self.store = Store(build([]).nodes)
        self.root = EMPTY_ID

    @initialize(entries=sequences(1000))
    def begin(self, entries: list[Entry]) -> None:
        self.apply(0, 0, entries)

    def apply(self, start: int, stop: int, new: list[Entry]) -> None:
        before = self.root
        edit = Rope(before, self.store).splice(start, stop, new)
        self.flat[start:stop] = new
        fresh = build(self.flat)
        assert edit.root == fresh.root
        assert edit.nodes.items() <= fresh.nodes.items()
        self.store.nodes.update(edit.nodes)
        assert fresh.nodes.items() <= self.store.nodes.items()
        self.root = edit.root

    def place(self, fraction: int) -> int:
        return len(self.flat) * fraction // 1000

    @rule(at=st.integers(0, 1000), new=sequences(200))
    def insert(self, at: int, new: list[Entry]) -> None:
        self.apply(self.place(at), self.place(at), new)

    @rule(new=sequences(60))
    def append(self, new: list[Entry]) -> None:
        self.apply(len(self.flat), len(self.flat), new)

    @precondition(lambda self: self.flat)
    @rule(at=st.integers(0, 999), new=sequences(1) | sequences(20))
    def replace_one(self, at: int, new: list[Entry]) -> None:
        self.apply(self.place(at), self.place(at) + 1, new)

    @rule(ends=st.tuples(st.integers(0, 1000), st.integers(0, 1000)), new=sequences(100))
    def replace_many(self, ends: tuple[int, int], new: list[Entry]) -> None:
        self.apply(self.place(min(ends)), self.place(max(ends)), new)

    @rule(ends=st.tuples(st.integers(0, 1000), st.integers(0, 1000)))
    def delete(self, ends: tuple[int, int]) -> None:
        start = self.place(min(ends))
        self.apply(start, min(start + 1 + max(ends) % 97, len(self.flat)), [])

    @rule(at=st.integers(900, 1000), new=sequences(10))
    def truncate_and_extend(self, at: int, new: list[Entry]) -> None:
        self.apply(self.place(at), len(self.flat), new)

    @rule(at=st.integers(0, 1000))
    def ask_a_prefix(self, at: int) -> None:
        blocks = self.place(at)
        assert Rope(self.root, self.store).prefix_root(blocks) == build(self.flat[:blocks]).root

    @invariant()
    def sums_are_right(self) -> None:
        rope = Rope(self.root, self.store)
        assert rope.count == len(self.flat)
        assert rope.logical_bytes == sum(size for _, size in self.flat)


TestEditing = pytest.mark.req("SEQ-1", "SEQ-3", "SEQ-4")(Editing.TestCase)
TestEditing.settings = settings(
    max_examples=max(1, settings().max_examples // 4), stateful_step_count=25
)


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_every_cut_of_a_small_sequence(pool: str) -> None:
    entries = draw_entries(pool, 9, 1)
    rope, _ = stored(entries)
    new = draw_entries(pool, 2, 2)
    for start in range(10):
        for stop in range(start, 10):
            for inserted in ([], new[:1], new):
                fresh = build([*entries[:start], *inserted, *entries[stop:]])
                edit = rope.splice(start, stop, inserted)
                assert edit.root == fresh.root
                assert edit.nodes.items() <= fresh.nodes.items()


@pytest.mark.req("SEQ-1")
def test_deleting_down_to_nothing_collapses_every_root() -> None:
    flat = draw_entries("always closing", 200, 5)
    rope, store = stored(flat)
    draw = random.Random(6)
    while flat:
        at = draw.randrange(len(flat))
        del flat[at]
        edit = rope.splice(at, at + 1, [])
        store.nodes.update(edit.nodes)
        rope = Rope(edit.root, store)
        assert edit.root == build(flat).root
    assert rope.root == EMPTY_ID


@pytest.mark.req("SEQ-2")
def test_append_keeps_completed_subtrees_and_adds_nodes_by_depth() -> None:
    rope, store = stored([])
    added = []
    for number in range(4000):
        edit = rope.append([entry(number)])
        added.append(len(edit.nodes))
        # Each level takes up to two changed slots, which close at most two nodes; and a new root.
        assert len(edit.nodes) <= 2 * (rope.top.level + 1) + 1
        if number % 500 == 499:
            completed = {
                node for node in check(rope.root, store).nodes if _closed(store.nodes[node])
            }
            after = Store({**store.nodes, **edit.nodes})
            kept = check(edit.root, after).nodes
            assert completed - {rope.root} <= kept
        store.nodes.update(edit.nodes)
        rope = Rope(edit.root, store)
    assert rope.top.level <= 3
    assert fmean(added) <= rope.top.level + 1.5


def _closed(data: bytes) -> bool:
    slots = decode_node(data).slots
    return bool(slots) and closes(len(slots), slots[-1].digest)


def _cost(rope: Rope, store: Store, start: int, stop: int, new: list[Entry]) -> tuple[int, int]:
    store.reads.clear()
    edit = rope.splice(start, stop, new)
    return len(edit.nodes), len(store.reads)


@pytest.mark.req("SEQ-3")
def test_edits_touch_the_path_only() -> None:
    count = 20_000
    rope, store = stored([entry(number) for number in range(count)])
    levels = rope.top.level + 1
    draw = random.Random(7)
    costs = []
    for number in range(200):
        at = draw.randrange(count)
        for width, new in [(1, [entry(count + number)]), (0, [entry(count + number)]), (1, [])]:
            costs.append(_cost(rope, store, at, at + width, new))
    assert fmean(nodes for nodes, _ in costs) <= levels + 1.5
    assert fmean(reads for _, reads in costs) <= levels + 2.5
    # An edit that removes or adds a boundary rewrites a neighbour or two on each level.
    assert max(nodes for nodes, _ in costs) <= 3 * levels
    assert max(reads for _, reads in costs) <= 4 * levels


@pytest.mark.req("SEQ-2")
def test_a_turn_costs_its_path_and_its_new_blocks() -> None:
    count = 20_000
    rope, store = stored([entry(number) for number in range(count)])
    levels = rope.top.level + 1
    for kept in [count, count - 1, count - 40, 12_345, 1, 0]:
        for added in [1, 4, 200]:
            new = [entry(count + number) for number in range(added)]
            nodes, reads = _cost(rope, store, kept, count, new)
            assert reads <= levels
            assert nodes <= 2 * levels + added // 10


@pytest.mark.req("SEQ-3")
def test_hostile_blocks_cost_no_more_than_their_chunks() -> None:
    count = 20_000
    flat = [never(number) for number in range(count)]
    rope, store = stored(flat)
    levels = rope.top.level + 1
    nodes, _ = _cost(rope, store, 1, 1, [never(count)])
    # Every leaf after the insert is another one, and so is what stands over them.
    assert count / CHUNK_SLOTS_MAX < nodes <= count / CHUNK_SLOTS_MAX * 1.1 + 2 * levels
    nodes, _ = _cost(rope, store, 1, 2, [never(count)])
    assert nodes <= 2 * levels
    assert rope.splice(1, 1, [never(count)]).root == build([flat[0], never(count), *flat[1:]]).root


@pytest.mark.req("SEQ-3")
def test_unrelated_blocks_keep_their_nodes() -> None:
    flat = [entry(number) for number in range(5000)]
    rope, store = stored(flat)
    edit = rope.splice(2500, 2501, [entry(9999)])
    old = set(store.nodes)
    new: set[NodeId] = set(check(edit.root, Store({**store.nodes, **edit.nodes})).nodes)
    assert len(old - new) <= 10
    assert new - old == set(edit.nodes)
