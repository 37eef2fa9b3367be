from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from protocol.rope.align import EDITS_MAX, Match, align

KEYS = st.lists(st.integers(0, 3), max_size=40) | st.lists(st.integers(0, 200), max_size=200)


def _matched(a: list[int], b: list[int]) -> int:
    at_a = at_b = total = 0
    for match in align(a, b):
        assert match.length > 0
        assert match.a >= at_a
        assert match.b >= at_b
        # Neighbours are joined.
        assert total == 0 or (match.a, match.b) != (at_a, at_b)
        at_a, at_b = match.a + match.length, match.b + match.length
        assert a[match.a : at_a] == b[match.b : at_b]
        total += match.length
    assert at_a <= len(a)
    assert at_b <= len(b)
    return total


def _longest_common(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        above = row
        row = [0]
        for index, y in enumerate(b):
            row.append(above[index] + 1 if x == y else max(above[index + 1], row[index]))
    return row[-1]


@given(KEYS, KEYS)
def test_matches_are_a_common_subsequence(a: list[int], b: list[int]) -> None:
    matched = _matched(a, b)
    longest = _longest_common(a, b)
    assert matched <= longest
    # As long as the edits are few, it is the longest one.
    if len(a) + len(b) - 2 * longest <= EDITS_MAX:
        assert matched == longest


@given(st.lists(st.integers(0, 5), max_size=30), st.data())
def test_few_edits_are_found_exactly(a: list[int], data: st.DataObject) -> None:
    b = list(a)
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(b)))
        b[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.lists(st.integers(0, 5), max_size=2)
        )
    assert _matched(a, b) == _longest_common(a, b)


def test_equal_and_disjoint_runs() -> None:
    assert align([], []) == []
    assert align([1, 2, 3], [1, 2, 3]) == [Match(0, 0, 3)]
    assert align([1, 2, 3], [4, 5]) == []
    assert align(list(range(1000)), list(range(1000, 3000))) == []


def test_many_edits_are_split_by_the_keys_that_stand_once() -> None:
    draw = random.Random(1)
    a = list(range(5000))
    b = [key if draw.random() > 0.2 else -draw.randrange(10**9) for key in a]
    assert _matched(a, b) == sum(x == y for x, y in zip(a, b, strict=True))


def test_a_long_insertion_in_the_middle_is_one_gap() -> None:
    a = list(range(2000))
    b = [*a[:5], -1, *a[6:1000], *range(5000, 9000), *a[1000:1990], -2, *a[1991:]]
    assert [(m.a, m.b, m.length) for m in align(a, b)] == [
        (0, 0, 5),
        (6, 6, 994),
        (1000, 5000, 990),
        (1991, 5991, 9),
    ]


class Key:
    """A key that counts how often any of them is hashed or compared."""

    uses = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        Key.uses += 1
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        Key.uses += 1
        return isinstance(other, Key) and self.value == other.value


def test_random_bits_stay_about_linear() -> None:
    draw = random.Random(2)
    a, b = ([Key(draw.randrange(2)) for _ in range(20_000)] for _ in range(2))
    Key.uses = 0
    align(a, b)
    # Myers until it gives up, and the counting of keys: far from 20,000² = 4 · 10^8.
    assert Key.uses < 20 * 20_000


def test_splits_that_each_reveal_one_more_key_stay_about_linear() -> None:
    # Key n stands twice, on either side of key n - 1: it counts as unique only once the runs were
    # split there. The rest is on one side only, so that nothing else lines up.
    a, b = (
        [
            Key(value)
            for number in range(2000)
            for value in (number + 1, side * 10**6 + number, number)
        ]
        for side in (1, 2)
    )
    Key.uses = 0
    assert align(a, b)
    assert Key.uses < 100 * len(a)
