"""Why two sequences differ, run by run (SEQ-7).

A run is judged by its first blocks: the first one removed and the first one inserted. The first of
these that holds is the reason:

1. `order`: one of the two was moved, that is, some run lists it on the other side.
2. `inserted`: the run only inserts. `removed`: it only removes.
3. The two are compared: `role` if their roles differ, `content` if their source or representation
   does, `rendering` otherwise (type, rendering parameters, trust or name).

So a block whose role and content both changed is a `role` difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from protocol.blocks import ContextBlock
from protocol.errors import RopeError
from protocol.ids import BlockId
from protocol.rope.diff import Diff
from protocol.rope.node import Entry

BlockLoader = Callable[[BlockId], ContextBlock]


class Reason(str, Enum):
    ORDER = "order"
    ROLE = "role"
    CONTENT = "content"
    RENDERING = "rendering"
    INSERTED = "inserted"
    REMOVED = "removed"


def reasons(difference: Diff, load: BlockLoader) -> Iterator[Reason]:
    """The reason of each run, in order; the first one is why the sequences part.

    Loads at most two blocks for each run that is asked for, and raises what `load` raises;
    RopeError if one block is listed with two sizes.
    """
    removed = {entry for run in difference.runs for entry in run.removed}
    inserted = {entry for run in difference.runs for entry in run.inserted}
    for run in difference.runs:
        if removed.intersection(run.inserted[:1]) or inserted.intersection(run.removed[:1]):
            yield Reason.ORDER
        elif not run.removed:
            yield Reason.INSERTED
        elif not run.inserted:
            yield Reason.REMOVED
        else:
            yield _between(run.removed[0], run.inserted[0], load)


def _between(old: Entry, new: Entry, load: BlockLoader) -> Reason:
    if old.block == new.block:
        raise RopeError(
            f"{old.block} is listed with {old.logical_bytes} and with {new.logical_bytes} bytes: "
            "one of the sequences was built from a wrong size"
        )
    before, after = load(old.block), load(new.block)
    if before.role != after.role:
        return Reason.ROLE
    if (before.source, before.representation) != (after.source, after.representation):
        return Reason.CONTENT
    return Reason.RENDERING
