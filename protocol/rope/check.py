"""Checking a whole tree: every node read, hashed and held to the one shape."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.ids import NodeId
from protocol.rope.node import Slot
from protocol.rope.read import NodeSource, Reader


@dataclass(frozen=True)
class Checked:
    """What a whole tree was found to be: its sums, its root's level, its distinct nodes."""

    count: int
    logical_bytes: int
    level: int
    nodes: frozenset[NodeId]


def check(root: NodeId, source: NodeSource) -> Checked:
    """The figures of the tree under `root`, if it is the one tree of its sequence (SEQ-1).

    Reads each distinct node once. Raises RopeError for any other shape, CorruptObject for bytes
    that do not hash to their id, and what the source raises.
    """
    reader = Reader(source)
    top = reader.root(root)
    seen = {root}
    # A node is checked once for each (slot, place) that it has: a tree of repeats stays cheap.
    checked: set[tuple[Slot, int, bool]] = set()
    waiting = [(top, True)]
    while waiting:
        node, last = waiting.pop()
        if node.level == 0:
            continue
        for index, slot in enumerate(node.slots):
            place = (slot, node.level - 1, last and index + 1 == len(node.slots))
            if place not in checked:
                checked.add(place)
                seen.add(NodeId(slot.digest))
                waiting.append((reader.load(slot, place[1], last=place[2]), place[2]))
    return Checked(top.blocks, top.logical_bytes, top.level, frozenset(seen))
