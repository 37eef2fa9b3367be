from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import CorruptObject
from protocol.rope import Entry, Rope, Run, build, diff
from tests.rope_model import Store, entry, patched, sequences, stored


def _agrees_with_the_flat_lists(a: list[Entry], b: list[Entry]) -> None:
    left, right = stored(a)[0], stored(b)[0]
    difference = diff(left, right)
    assert patched(a, difference) == b
    pairs = zip(a, b, strict=False)
    first = next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
    if a == b:
        assert difference == (None, ())
    else:
        assert difference.first == first == difference.runs[0].a == difference.runs[0].b
    end = (0, 0)
    for run in difference.runs:
        # Runs do not touch: between two of them stands a block that both sides have.
        assert run.a > end[0] or run.b > end[1] or end == (0, 0)
        end = (run.a + len(run.removed), run.b + len(run.inserted))


@pytest.mark.req("SEQ-7")
@given(sequences(600), st.data())
def test_equals_the_difference_of_the_flat_lists(a: list[Entry], data: st.DataObject) -> None:
    b = list(a)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(b)))
        b[at : at + data.draw(st.integers(0, 3))] = data.draw(sequences(4))
    _agrees_with_the_flat_lists(a, b)


@pytest.mark.req("SEQ-7")
@given(sequences(400), sequences(400))
def test_unrelated_sequences_differ_correctly(a: list[Entry], b: list[Entry]) -> None:
    _agrees_with_the_flat_lists(a, b)
    _agrees_with_the_flat_lists(a, a + b)
    _agrees_with_the_flat_lists(a + b, b)


def _pair(a: list[Entry], b: list[Entry]) -> tuple[Rope, Rope, Store]:
    first, second = build(a), build(b)
    store = Store({**first.nodes, **second.nodes})
    left, right = Rope(first.root, store), Rope(second.root, store)
    store.reads.clear()
    return left, right, store


@pytest.mark.req("SEQ-7")
def test_costs_the_changed_part_only() -> None:
    count = 10_000
    flat = [entry(number) for number in range(count)]
    draw = random.Random(1)
    for edits in (1, 3, 10):
        for _ in range(3):
            b = list(flat)
            for at in sorted(draw.sample(range(count), edits), reverse=True):
                b[at : at + draw.randrange(2)] = [entry(count + at)]
            left, right, store = _pair(flat, b)
            difference = diff(left, right)
            assert patched(flat, difference) == b
            # Exactly the blocks that changed, however far they have moved.
            assert len(difference.runs) == edits
            assert sum(len(run.removed) + len(run.inserted) for run in difference.runs) <= 2 * edits
            # On both sides about one path for each edit, the neighbours, and the two ends.
            levels = left.top.level + 1
            assert len(store.reads) <= 6 * levels * (edits + 1)
            assert len(store.reads) < 0.4 * len(store.nodes)


@pytest.mark.req("SEQ-7")
def test_equal_subtrees_are_not_read_when_they_have_moved() -> None:
    flat = [entry(number) for number in range(20_000)]
    b = [entry(-1), *flat[:10_000], *flat[10_100:], entry(-2)]
    left, right, store = _pair(flat, b)
    assert diff(left, right).runs == (
        Run(0, 0, (), (entry(-1),)),
        Run(10_000, 10_001, tuple(flat[10_000:10_100]), ()),
        Run(20_000, 19_901, (), (entry(-2),)),
    )
    assert len(store.reads) < 60


def test_equal_ropes_are_not_read_at_all() -> None:
    left, right, store = _pair([entry(1)] * 500, [entry(1)] * 500)
    assert diff(left, right) == (None, ())
    assert store.reads == []


def test_one_block_with_two_sizes_is_a_difference() -> None:
    left, right, _ = _pair([entry(1, 5), entry(2)], [entry(1, 6), entry(2)])
    assert diff(left, right).runs == (Run(0, 0, (entry(1, 5),), (entry(1, 6),)),)


def test_nodes_on_the_way_are_checked() -> None:
    flat = [entry(number) for number in range(2000)]
    left, right, store = _pair(flat, [*flat[:1000], *flat[1001:]])
    diff(left, right)
    for node in set(store.reads):
        before = store.nodes[node]
        store.nodes[node] = before + b"\0"
        with pytest.raises(CorruptObject):
            diff(left, right)
        store.nodes[node] = before
