from __future__ import annotations

import pytest
from hypothesis import given

from protocol.errors import LimitExceeded
from protocol.limits import BLOCKS_MAX
from protocol.rope import EMPTY_BYTES, EMPTY_ID, Entry, Rope, build, check
from protocol.rope.build import check_count
from protocol.rope.node import decode_node
from tests.rope_model import (
    POOLS,
    Store,
    always,
    draw_entries,
    entry,
    naive_build,
    never,
    sequences,
)

# Blocks 0 … n - 1 of the model: root level and root, computed by the independent builder.
GOLDEN = {
    0: (0, "rope:ywjbwcbzcvgcurlyrzysccrcl24azloc55tdjdsuak6pofmurkdq"),
    1: (0, "rope:4pl6yfm6rrx2k5ooiy2ofttxaic62sp2av23ihoy4prx76paxk3q"),
    2: (0, "rope:2tmicaay5nptrhew6aduorixvm7oiqbumobintsx6at4uhngrr5a"),
    3: (0, "rope:wxp5ysoc2yqq5mmkwmiiaapsx2euzl7kigl5mhxtfw4xpiaw7mva"),
    100: (1, "rope:f4rbvxbt3fymfqx7uj7qmy2f7dqevkvhefg6jx6225d3tee4dsya"),
    1000: (1, "rope:7cjeqhm4xnadxbp5lke2zebxgrdvw5dew32oqd2il4oxrl5v442a"),
    10000: (2, "rope:axbjhygedxhz5ur2vh6qrcq7ceuhs4rklqh3papy7vv75usd3p3q"),
}


@pytest.mark.req("SEQ-1")
@given(sequences(1500))
def test_equals_the_independent_builder(entries: list[Entry]) -> None:
    edit = build(entries)
    assert (edit.root, edit.nodes) == naive_build(entries)


@pytest.mark.req("SEQ-1", "SEQ-5")
@pytest.mark.parametrize("pool", sorted(POOLS))
def test_whole_tree_passes_the_check(pool: str) -> None:
    entries = draw_entries(pool, 5000, 1)
    edit = build(entries)
    checked = check(edit.root, Store(edit.nodes))
    assert checked.count == 5000
    assert checked.logical_bytes == sum(size for _, size in entries)
    assert checked.nodes == set(edit.nodes)


def test_empty_sequence() -> None:
    assert build([]) == (EMPTY_ID, {EMPTY_ID: EMPTY_BYTES})


@pytest.mark.req("SEQ-1")
def test_roots_that_may_never_move() -> None:
    for count, (level, root) in GOLDEN.items():
        edit = build(entry(number) for number in range(count))
        assert str(edit.root) == root
        assert decode_node(edit.nodes[edit.root]).level == level


def test_identical_blocks_share_their_nodes() -> None:
    assert len(build([entry(5)] * 10_000).nodes) <= 5


def test_hostile_ids_give_chunks_within_the_bounds() -> None:
    never_closing = build([never(number) for number in range(1280)])
    leaves = [node for node in map(decode_node, never_closing.nodes.values()) if node.level == 0]
    assert [len(leaf.slots) for leaf in leaves] == [128] * 10
    always_closing = build([always(number) for number in range(1280)])
    leaves = [node for node in map(decode_node, always_closing.nodes.values()) if node.level == 0]
    assert [len(leaf.slots) for leaf in leaves] == [2] * 640


def test_chunks_of_even_ids_hold_about_32_blocks() -> None:
    nodes = build(entry(number) for number in range(20_000)).nodes.values()
    leaves = sum(decode_node(data).level == 0 for data in nodes)
    # Expected: 1 + 32 · (1 − (31/32)^127) ≈ 32.4; the standard error of the mean is about 1.2.
    assert 28 < 20_000 / leaves < 37


def test_too_many_blocks_are_refused() -> None:
    check_count(BLOCKS_MAX)
    with pytest.raises(LimitExceeded, match="at most"):
        build([never()] * (BLOCKS_MAX + 1))


def test_only_root_is_needed_for_the_sums() -> None:
    edit = build(entry(number) for number in range(3000))
    rope = Rope(edit.root, Store({edit.root: edit.nodes[edit.root]}))
    assert (rope.count, rope.logical_bytes) == (3000, 3 * sum(range(1000)))
