"""The sequence as a value: a root, and a source for the nodes below it.

A Rope never changes. An edit returns the new root with the nodes that are new; who stores them,
and who may read them, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol import cbor
from protocol.errors import ContentError
from protocol.ids import NodeId, PrefixId
from protocol.rope.build import Edit, check_count
from protocol.rope.edit import splice_slots
from protocol.rope.node import EMPTY_ID, Entry, to_entry, to_slots
from protocol.rope.read import Cursor, NodeSource, Reader, descend


def prefix_id(blocks: int, root: NodeId) -> PrefixId:
    """The id of the prefix of `blocks` blocks whose own tree has `root` (SEQ-4)."""
    return PrefixId.of(cbor.encode([blocks, root.digest]))


class Rope:
    """The sequence of blocks under `root`.

    Making one reads the root. Every method that reads nodes raises RopeError for a node that is
    not the one that belongs there, CorruptObject for bytes that do not hash to their id, and what
    the source raises; and ContentError for a block number that the sequence does not have.
    """

    def __init__(self, root: NodeId, source: NodeSource) -> None:
        self.root = root
        self.source = source
        self.top = Reader(source).root(root)

    @property
    def count(self) -> int:
        """Blocks in the sequence."""
        return self.top.blocks

    @property
    def logical_bytes(self) -> int:
        """Bytes of content in all of its blocks."""
        return self.top.logical_bytes

    def get(self, index: int) -> Entry:
        """Block `index` (from 0). Reads one path."""
        if not 0 <= index < self.count:
            raise ContentError(
                f"block {index} of a sequence of {self.count} blocks", blocks=self.count
            )
        leaf = descend(Reader(self.source), self.top, index)[0]
        return to_entry(leaf.node.slots[leaf.index])

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Blocks [start, stop), to the end without `stop`; nodes are read as it comes to them."""
        stop = self.count if stop is None else stop
        self._check_range(start, stop)
        return self._walk(start, stop)

    def _walk(self, start: int, stop: int) -> Iterator[Entry]:
        if start == stop:
            return
        reader = Reader(self.source)
        cursor = Cursor(reader, descend(reader, self.top, start))
        for _ in range(stop - start):
            slot = cursor.take(0)
            assert slot is not None, "sums are checked on every load"
            yield to_entry(slot)

    def splice(self, start: int, stop: int, entries: Iterable[Entry]) -> Edit:
        """Blocks [start, stop) replaced by `entries`: insert, replace, delete, truncate and extend.

        Equal to a fresh build of the result. Reads and makes O(log n + m) nodes for m new blocks.
        Raises ContentError and LimitExceeded for entries as `build` does.
        """
        self._check_range(start, stop)
        fresh = to_slots(entries)
        check_count(self.count - (stop - start) + len(fresh))
        return splice_slots(self.source, self.root, self.top, (start, stop), fresh)

    def append(self, entries: Iterable[Entry]) -> Edit:
        """`entries` after the last block. Every earlier prefix keeps its id (I-PREFIX)."""
        return self.splice(self.count, self.count, entries)

    def prefix_root(self, blocks: int) -> NodeId:
        """The root that a fresh build of the first `blocks` blocks (0 … count) has.

        Reads one path. For the nodes of that tree, cut: `splice(blocks, count, ())`.
        """
        self._check_range(blocks, self.count)
        if blocks == self.count:
            return self.root
        if blocks == 0:
            return EMPTY_ID
        return splice_slots(self.source, self.root, self.top, (blocks, self.count), []).root

    def prefix_id(self, blocks: int) -> PrefixId:
        """The identity of the boundary after the first `blocks` blocks (SEQ-4)."""
        return prefix_id(blocks, self.prefix_root(blocks))

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.count:
            raise ContentError(
                f"blocks {start} to {stop} of a sequence of {self.count} blocks", blocks=self.count
            )
