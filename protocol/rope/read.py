"""Reading: nodes from a source, each checked as it arrives, and a cursor over the blocks.

A node source is any function from a NodeId to its bytes; it raises NotVisible for an id that it
does not have or may not show. What it returns is hashed before it is decoded, and its shape is
checked against the place that it was asked for, so a tree that is read partly is as trustworthy
in that part as one that was read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocol.ids import NodeId
from protocol.rope.node import Node, Slot, check_place, check_root, decode_node

NodeSource = Callable[[NodeId], bytes]


class Reader:
    """Nodes by id, hashed and checked.

    With `kept`, a map that the reader fills, each node is read from the source only once.
    Every method raises CorruptObject (the bytes do not hash to the id), RopeError (they are not
    the node that belongs there) and what the source raises.
    """

    def __init__(self, source: NodeSource, *, kept: dict[NodeId, Node] | None = None) -> None:
        self._source = source
        self._kept = kept

    def root(self, root: NodeId) -> Node:
        node = self._node(root)
        check_root(node)
        return node

    def load(self, slot: Slot, level: int, *, last: bool) -> Node:
        """The node at `level` to which `slot` points; `last`: no node of its level follows it."""
        node = self._node(NodeId(slot.digest))
        # Checked at each place: the same node may stand rightly in one and wrongly in another.
        check_place(node, slot, level, last=last)
        return node

    def _node(self, wanted: NodeId) -> Node:
        if self._kept is not None and wanted in self._kept:
            return self._kept[wanted]
        node = decode_node(wanted.check(self._source(wanted)))
        if self._kept is not None:
            self._kept[wanted] = node
        return node


@dataclass
class Step:
    """A node on a path, the slot taken in it, and whether the node is the last of its level."""

    node: Node
    index: int
    last: bool


def descend(reader: Reader, top: Node, position: int) -> list[Step]:
    """The path from the root `top` to block `position` (0 … count), leaf first.

    At `position` = count the path is the right spine, and the leaf's index its length.
    """
    steps: list[Step] = []
    node, last = top, True
    while node.level:
        end = len(node.slots) - 1
        index = 0
        while index < end and position >= node.slots[index].blocks:
            position -= node.slots[index].blocks
            index += 1
        steps.append(Step(node, index, last))
        last = last and index == end
        node = reader.load(node.slots[index], node.level - 1, last=last)
    steps.append(Step(node, position, last))
    steps.reverse()
    return steps


class Cursor:
    """A place in a tree that moves to the right, one slot of one level at a time.

    It serves an edit, which reads a level to where its chunks agree again and then goes on one
    level up: `take` and `at_boundary` at level 0 until done, `leave(0)`, then level 1, and so on.
    """

    def __init__(self, reader: Reader, steps: list[Step]) -> None:
        self._reader = reader
        self._steps = steps

    def at_boundary(self, level: int) -> bool:
        """Whether the next slot of `level` begins a node, or none is left."""
        step = self._steps[level]
        return step.index in (0, len(step.node.slots))

    def take(self, level: int) -> Slot | None:
        """The next slot of `level`, None after the last."""
        step = self._steps[level]
        if step.index == len(step.node.slots):
            if not self._enter_next(level):
                return None
            step = self._steps[level]
        step.index += 1
        return step.node.slots[step.index - 1]

    def leave(self, level: int) -> bool:
        """Done with `level`: the level above goes on with the first node that was not read.

        False at the root when the whole root was left unread.
        """
        step = self._steps[level]
        read = step.index > 0
        if read and level + 1 < len(self._steps):
            self._steps[level + 1].index += 1
        return read

    def _enter_next(self, level: int) -> bool:
        if level + 1 == len(self._steps):
            return False
        parent = self._steps[level + 1]
        if parent.index + 1 < len(parent.node.slots):
            parent.index += 1
        elif self._enter_next(level + 1):
            parent = self._steps[level + 1]
        else:
            return False
        last = parent.last and parent.index + 1 == len(parent.node.slots)
        node = self._reader.load(parent.node.slots[parent.index], level, last=last)
        self._steps[level] = Step(node, 0, last)
        return True
