"""Aligning two runs of keys: which of the first stand, in order, in the second.

Differences between two turns are few, so Myers' algorithm finds the fewest of them in time that
grows with their number (An O(ND) Difference Algorithm, 1986). Where there are many, its cost would
grow with their square: it gives up at EDITS_MAX, and the keys that stand exactly once on both sides
split the runs (patience). What is then still undecided counts as replaced. So the cost is at most
about linear, whatever the input, and the answer depends on the input alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

# 64 edits cost at most about 64^2 steps and 64 copies of 130 numbers.
EDITS_MAX: Final = 64
# Splits within splits. Ordinary input needs one or two; a hostile one stops here.
SPLITS_MAX: Final = 8

Keys = Sequence[Hashable]


class Match(NamedTuple):
    """`length` equal keys from `a` in the first run and `b` in the second."""

    a: int
    b: int
    length: int


def align(a: Keys, b: Keys) -> list[Match]:
    """The matches of a common subsequence: rising on both sides, neighbours joined."""
    found: list[Match] = []
    waiting = [(0, len(a), 0, len(b), SPLITS_MAX)]
    while waiting:
        a_start, a_stop, b_start, b_stop, splits = waiting.pop()
        head = _common(a, b, (a_start, b_start), min(a_stop - a_start, b_stop - b_start))
        found.append(Match(a_start, b_start, head))
        a_start, b_start = a_start + head, b_start + head
        room = min(a_stop - a_start, b_stop - b_start)
        tail = _common(a, b, (a_stop - 1, b_stop - 1), room, -1)
        a_stop, b_stop = a_stop - tail, b_stop - tail
        found.append(Match(a_stop, b_stop, tail))
        if a_start == a_stop or b_start == b_stop:
            continue
        fewest = _fewest_edits(a[a_start:a_stop], b[b_start:b_stop])
        if fewest is not None:
            found += [Match(a_start + x, b_start + y, 1) for x, y in fewest]
        elif splits:
            split = _unique_pairs(a[a_start:a_stop], b[b_start:b_stop])
            x, y = a_start, b_start
            for next_x, next_y in split:
                waiting.append((x, a_start + next_x, y, b_start + next_y, splits - 1))
                x, y = a_start + next_x + 1, b_start + next_y + 1
                found.append(Match(x - 1, y - 1, 1))
            if split:
                waiting.append((x, a_stop, y, b_stop, splits - 1))
    return _joined(sorted(match for match in found if match.length))


def _joined(matches: list[Match]) -> list[Match]:
    joined: list[Match] = []
    for match in matches:
        before = joined[-1] if joined else None
        if before and (before.a + before.length, before.b + before.length) == (match.a, match.b):
            joined[-1] = Match(before.a, before.b, before.length + match.length)
        else:
            joined.append(match)
    return joined


def _common(a: Keys, b: Keys, at: tuple[int, int], room: int, step: int = 1) -> int:
    """How many keys, `room` at most, are equal from `at` on (with step -1, backwards)."""
    x, y = at
    length = 0
    while length < room and a[x + step * length] == b[y + step * length]:
        length += 1
    return length


def _fewest_edits(a: Keys, b: Keys) -> list[tuple[int, int]] | None:
    """The pairs kept by the fewest insertions and deletions, None if over EDITS_MAX of them."""
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(EDITS_MAX + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = _goes_down(furthest, diagonal, edits)
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            room = min(len(a) - x, len(b) - (x - diagonal))
            x += _common(a, b, (x, x - diagonal), room)
            furthest[diagonal] = x
            if x == len(a) and x - diagonal == len(b):
                return _kept(trace, x, x - diagonal)
    return None


def _goes_down(furthest: dict[int, int], diagonal: int, edits: int) -> bool:
    """Whether the best way to `diagonal` inserts a key of the second run."""
    if diagonal in (-edits, edits):
        return diagonal == -edits
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _kept(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        furthest, diagonal = trace[edits], x - y
        down = _goes_down(furthest, diagonal, edits)
        before = diagonal + 1 if down else diagonal - 1
        before_x = furthest[before] if edits else 0
        before_y = before_x - before if edits else 0
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            kept.append((x, y))
        x, y = before_x, before_y
    return kept[::-1]


def _unique_pairs(a: Keys, b: Keys) -> list[tuple[int, int]]:
    """The longest rising run of pairs of keys that stand exactly once on each side."""
    a_times, b_times = Counter(a), Counter(b)
    b_place = {key: y for y, key in enumerate(b) if b_times[key] == 1}
    pairs = [(x, b_place[key]) for x, key in enumerate(a) if a_times[key] == 1 and key in b_place]
    # The last pair, and its place in `b`, of the best run of each length; what came before a pair.
    ends: list[int] = []
    at_end: list[int] = []
    before: list[int] = []
    for index, (_, y) in enumerate(pairs):
        length = bisect_left(ends, y)
        before.append(at_end[length - 1] if length else -1)
        if length == len(ends):
            ends.append(y)
            at_end.append(index)
        else:
            ends[length], at_end[length] = y, index
    longest: list[tuple[int, int]] = []
    index = at_end[-1] if at_end else -1
    while index >= 0:
        longest.append(pairs[index])
        index = before[index]
    return longest[::-1]
