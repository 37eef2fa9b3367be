"""Where two contexts first differ, and why: in blocks and in tokens.

Blocks say why (reasons of `protocol.rope.reason`), tokens say what it costs: everything before
`token_index` is the same input to the model, so state that was computed for it can be used again.
The two need not fall together: another block may begin with the same header and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, cast

from protocol.blocks import ContextBlock
from protocol.grammar import BlockTokens
from protocol.ids import BlockId
from protocol.record import object_id
from protocol.rope.align import align
from protocol.rope.diff import Diff, Run
from protocol.rope.node import Entry
from protocol.rope.reason import reasons
from protocol.tokens import TokenIds

CONTRACT = "contract"


class Placed(NamedTuple):
    """A block of a context and its tokens there."""

    block: ContextBlock
    tokens: BlockTokens


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """`index` is the block at which the contexts part, `token_index` the length of their common
    prefix in tokens. `reason` is order, role, content, rendering, inserted or removed; `contract`
    where all blocks are equal and only their tokens differ."""

    index: int
    reason: str
    token_index: int


@dataclass(frozen=True, slots=True)
class ContextDiff:
    """`equal_blocks` is how many first blocks are the same with the same tokens."""

    equal_blocks: int
    first_difference: FirstDifference | None


def first_difference(a: Sequence[Placed], b: Sequence[Placed]) -> ContextDiff:
    """Where and why `a` and `b` first differ. Costs what the blocks that differ cost, and one
    comparison for each that does not."""
    index = 0
    shared = min(len(a), len(b))
    while index < shared and a[index] == b[index]:
        index += 1
    if index == len(a) == len(b):
        return ContextDiff(index, None)
    tokens = sum(len(placed.tokens.ids) for placed in a[:index])
    token_index = tokens + common_tokens(_stream(a[index:]), _stream(b[index:]))
    reason = _reason(a[index:], b[index:])
    return ContextDiff(index, FirstDifference(index, reason, token_index))


def common_tokens(a: TokenIds, b: TokenIds) -> int:
    """The length of the common prefix of two token streams."""
    low, high = 0, min(len(a), len(b))
    # Slices compare in C: halving beats a loop in Python by an order of magnitude.
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _reason(a: Sequence[Placed], b: Sequence[Placed]) -> str:
    blocks: dict[BlockId, ContextBlock] = {}
    old, new = _entries(a, blocks), _entries(b, blocks)
    if old[:1] == new[:1]:
        return CONTRACT
    difference = Diff(0, tuple(_runs(old, new)))
    return next(reasons(difference, blocks.__getitem__)).value


def _entries(placed: Sequence[Placed], blocks: dict[BlockId, ContextBlock]) -> list[Entry]:
    entries = []
    for block, _ in placed:
        identity = cast("BlockId", object_id(block))
        blocks[identity] = block
        # Sizes play no part in a reason; they only have to be the same for the same block.
        entries.append(Entry(identity, 0))
    return entries


def _runs(old: list[Entry], new: list[Entry]) -> list[Run]:
    runs = []
    x = y = 0
    ends = (len(old), len(new))
    for start_x, start_y, stop_x, stop_y in [
        *(
            (match.a, match.b, match.a + match.length, match.b + match.length)
            for match in align(old, new)
        ),
        (*ends, *ends),
    ]:
        if x < start_x or y < start_y:
            runs.append(Run(x, y, tuple(old[x:start_x]), tuple(new[y:start_y])))
        x, y = stop_x, stop_y
    return runs


def _stream(placed: Sequence[Placed]) -> TokenIds:
    return tuple(chain.from_iterable(each.tokens.ids for each in placed))
