from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.rope import Entry, Rope
from protocol.rope.read import Reader
from protocol.rope.trim import Side, common_head, common_tail
from tests.rope_model import entry, sequences, stored


def _side(rope: Rope) -> Side:
    return Side(rope.top, Reader(rope.source, kept={}))


def _head(a: list[Entry], b: list[Entry]) -> int:
    pairs = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


@given(sequences(700), sequences(50), st.integers(0, 1000), st.integers(0, 5))
def test_ends_are_exactly_those_of_the_flat_lists(
    a: list[Entry], new: list[Entry], fraction: int, removed: int
) -> None:
    at = len(a) * fraction // 1000
    b = [*a[:at], *new, *a[at + removed :]]
    left, right = _side(stored(a)[0]), _side(stored(b)[0])
    assert common_head(left, right) == common_head(right, left) == _head(a, b)
    shorter = min(len(a), len(b))
    tail = _head(a[::-1], b[::-1])
    for room in (0, shorter // 2, shorter):
        assert common_tail(left, right, room) == min(tail, room)


def test_trees_of_different_height() -> None:
    long = [entry(number) for number in range(3000)]
    for count in (0, 1, 2, 31, 100, 1000, 2999):
        (a, _), (b, _) = stored(long), stored(long[:count])
        assert common_head(_side(a), _side(b)) == count
        c, _ = stored(long[3000 - count :])
        assert common_tail(_side(a), _side(c), count) == count


def test_one_path_is_read_on_each_side() -> None:
    flat = [entry(number) for number in range(20_000)]
    for at in (0, 9999, 19_999):
        (a, a_store), (b, b_store) = stored(flat), stored([*flat[:at], entry(-1), *flat[at:]])
        assert common_head(_side(a), _side(b)) == at
        assert len(a_store.reads) <= a.top.level + 1
        assert len(b_store.reads) <= b.top.level + 1
        assert common_tail(_side(a), _side(b), 20_000 - at) == 20_000 - at
        assert len(a_store.reads) + len(b_store.reads) < 8 * (a.top.level + 1)
