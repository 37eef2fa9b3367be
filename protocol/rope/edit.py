"""Editing: a new root from an old one, at the cost of the path that changed.

A splice works level by level. It takes the node that holds the first changed slot from its start,
puts the new slots in, and goes on with the old ones until a chunk closes where an old chunk closed:
from there on the level is as it was. The nodes so made replace the ones that were read, and that is
the splice of the level above. At the end a root with a single slot gives way to the node below it.
Costs O(log n + m) reads and new nodes for m new blocks, in expectation over ids (SEQ-2, SEQ-3).
"""

from __future__ import annotations

from protocol.ids import NodeId
from protocol.rope.build import Edit, Weaver
from protocol.rope.node import EMPTY_BYTES, EMPTY_ID, Node, Slot, closes
from protocol.rope.read import Cursor, NodeSource, Reader, descend


def splice_slots(
    source: NodeSource, root: NodeId, top: Node, cut: tuple[int, int], fresh: list[Slot]
) -> Edit:
    """The tree under `root` (its node: `top`) with blocks [start, stop), the `cut`, replaced by
    the level-0 slots `fresh`. 0 ≤ start ≤ stop ≤ count is the caller's to check.

    Each node is read at most once; raises what Reader raises.
    """
    start, stop = cut
    kept = {root: top}
    reader, weaver = Reader(source, kept=kept), Weaver()
    left = descend(reader, top, start)
    # Nothing is kept on the right of a cut to the end: it needs no second path.
    right = Cursor(reader, descend(reader, top, stop)) if stop < top.blocks else None
    slots, root_read = fresh, True
    for step in left:
        level = step.node.level
        slots = _rechunk(weaver, level, [*step.node.slots[: step.index], *slots], right)
        if right is not None:
            root_read = right.leave(level)
    if not root_read:
        slots.append(Slot(root.digest, top.blocks, top.logical_bytes))
    if not slots:
        edit = Edit(EMPTY_ID, {EMPTY_ID: EMPTY_BYTES})
    elif len(slots) > 1:
        edit = weaver.edit(weaver.raise_to_root(top.level + 1, slots))
    else:
        edit = weaver.edit(_collapse(weaver, reader, slots[0], top.level))
    return Edit(edit.root, {made: data for made, data in edit.nodes.items() if made not in kept})


def _rechunk(weaver: Weaver, level: int, slots: list[Slot], right: Cursor | None) -> list[Slot]:
    """Chunks `slots` and then what `right` still holds, up to where the old chunks agree."""
    closed, chunk = weaver.chunk(level, slots)
    if right is not None:
        while chunk or not right.at_boundary(level):
            slot = right.take(level)
            if slot is None:
                break
            chunk.append(slot)
            if closes(len(chunk), slot.digest):
                closed.append(weaver.close(level, chunk))
                chunk = []
    if chunk:
        closed.append(weaver.close(level, chunk))
    return closed


def _collapse(weaver: Weaver, reader: Reader, slot: Slot, level: int) -> NodeId:
    """The root of a level that has the one node of `slot`: the lowest such level."""
    while True:
        root = NodeId(slot.digest)
        made = weaver.made.get(root)
        if level == 0:
            return root
        node = made[0] if made else reader.load(slot, level, last=True)
        if len(node.slots) > 1:
            return root
        weaver.made.pop(root, None)
        slot, level = node.slots[0], level - 1
