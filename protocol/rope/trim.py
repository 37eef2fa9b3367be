"""How far two sequences are the same from either end.

Chunks depend on what stands before them alone, so two trees of one beginning have the same chunks
up to the one where they part: a single walk down both finds the exact place in O(log n). From the
end the chunks agree again soon after the last change; where they do not, blocks are compared one
by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.rope.node import Node, Slot
from protocol.rope.read import Reader, Step


@dataclass(frozen=True)
class Side:
    """One of two sequences that are compared: its root node and the reader for the rest."""

    top: Node
    reader: Reader


def common_head(a: Side, b: Side) -> int:
    """How many first blocks are the same. The roots' levels may differ."""
    left, right = (a.top, True), (b.top, True)
    blocks = 0
    while True:
        while left[0].level > right[0].level:
            left = _first_child(a, left)
        while right[0].level > left[0].level:
            right = _first_child(b, right)
        (x, x_last), (y, y_last) = left, right
        index = 0
        shorter = min(len(x.slots), len(y.slots))
        while index < shorter and x.slots[index] == y.slots[index]:
            blocks += x.slots[index].blocks
            index += 1
        # One ends inside the other: it was open, so it is where its whole sequence ends.
        if x.level == 0 or index == shorter:
            return blocks
        left, right = _child(a, x, index, x_last), _child(b, y, index, y_last)


def common_tail(a: Side, b: Side, room: int) -> int:
    """How many last blocks are the same, `room` at most."""
    left, right = _Backwards(a), _Backwards(b)
    blocks = 0
    while blocks < room:
        level, slot = left.current()
        other_level, other = right.current()
        if (level, slot) == (other_level, other) and blocks + slot.blocks <= room:
            blocks += slot.blocks
            left.skip()
            right.skip()
        elif level == 0 and other_level == 0:
            break
        else:
            if level >= other_level:
                left.open()
            if other_level >= level:
                right.open()
    return blocks


def _first_child(side: Side, place: tuple[Node, bool]) -> tuple[Node, bool]:
    return _child(side, place[0], 0, place[1])


def _child(side: Side, node: Node, index: int, last: bool) -> tuple[Node, bool]:
    last = last and index + 1 == len(node.slots)
    return side.reader.load(node.slots[index], node.level - 1, last=last), last


class _Backwards:
    """A walk from the last block to the first that may skip whole nodes."""

    def __init__(self, side: Side) -> None:
        self._side = side
        # A step's index counts the slots of its node that are still to come.
        self._steps = [Step(side.top, len(side.top.slots), True)]

    def current(self) -> tuple[int, Slot]:
        """The level of the slot before this place, and the slot."""
        step = self._steps[-1]
        return step.node.level, step.node.slots[step.index - 1]

    def skip(self) -> None:
        self._steps[-1].index -= 1
        while self._steps and self._steps[-1].index == 0:
            self._steps.pop()

    def open(self) -> None:
        step = self._steps[-1]
        child, last = _child(self._side, step.node, step.index - 1, step.last)
        self.skip()
        self._steps.append(Step(child, len(child.slots), last))
