"""Building: the one tree of a sequence, from its entries. It is the oracle of every edit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from protocol.errors import LimitExceeded
from protocol.ids import NodeId
from protocol.limits import BLOCKS_MAX
from protocol.rope.node import (
    EMPTY_BYTES,
    EMPTY_ID,
    Entry,
    Node,
    Slot,
    closes,
    encode_node,
    to_slots,
)


class Edit(NamedTuple):
    """A root, and the encodings of those of its nodes that were not read to make it.

    Storing `nodes` beside what was there before makes the tree under `root` complete.
    """

    root: NodeId
    nodes: dict[NodeId, bytes]


class Weaver:
    """Closes chunks into nodes and remembers them."""

    def __init__(self) -> None:
        self.made: dict[NodeId, tuple[Node, bytes]] = {}

    def close(self, level: int, chunk: list[Slot]) -> Slot:
        """The slot, one level up, of the node that `chunk` becomes at `level`."""
        node = Node(level, tuple(chunk))
        data = encode_node(node)
        made = NodeId.of(data)
        self.made[made] = (node, data)
        return Slot(made.digest, node.blocks, node.logical_bytes)

    def chunk(self, level: int, slots: Iterable[Slot]) -> tuple[list[Slot], list[Slot]]:
        """The slots of the nodes that `slots` close at `level`, and what is left open."""
        closed: list[Slot] = []
        chunk: list[Slot] = []
        for slot in slots:
            chunk.append(slot)
            if closes(len(chunk), slot.digest):
                closed.append(self.close(level, chunk))
                chunk = []
        return closed, chunk

    def raise_to_root(self, level: int, slots: list[Slot]) -> NodeId:
        """The root over `slots`, all the slots of `level`: levels until one has a single node."""
        while True:
            closed, rest = self.chunk(level, slots)
            if rest:
                closed.append(self.close(level, rest))
            if len(closed) == 1:
                return NodeId(closed[0].digest)
            slots, level = closed, level + 1

    def edit(self, root: NodeId) -> Edit:
        """All nodes made, under `root`."""
        return Edit(root, {made: data for made, (_, data) in self.made.items()})


def check_count(blocks: int) -> None:
    """Raises LimitExceeded for more blocks than a sequence may have."""
    if blocks > BLOCKS_MAX:
        raise LimitExceeded(
            f"a sequence of {blocks} blocks; at most {BLOCKS_MAX} are allowed: summarize some",
            blocks=blocks,
            blocks_max=BLOCKS_MAX,
        )


def build(entries: Iterable[Entry]) -> Edit:
    """The tree of `entries`, every node of it.

    Raises ContentError for an entry that is none and LimitExceeded for more than BLOCKS_MAX.
    """
    slots = to_slots(entries)
    check_count(len(slots))
    if not slots:
        return Edit(EMPTY_ID, {EMPTY_ID: EMPTY_BYTES})
    weaver = Weaver()
    return weaver.edit(weaver.raise_to_root(0, slots))
