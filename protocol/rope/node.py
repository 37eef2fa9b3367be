"""Nodes: the format of one rope node, and the shape that makes a tree the only one it could be.

    node = CBOR array ["huginn.rope/1", level, [[id, count, bytes], …]]

At level 0 a slot is [block id, 1, logical bytes of the block's content]; above it, [id of a node
one level down, blocks below it, logical bytes below it]. Ids are their 32 digest bytes, and a
node's own id is `NodeId.of(encoding)`, so level and counts stand inside the hash.

Where one node ends and the next begins is decided by the ids alone, left to right: a chunk closes
at 128 slots, or when it has at least 2 slots and the first 32 bits of its last id, as a big-endian
number, are below 2^32 / 32. Only the last node of a level may be open. So a sequence has exactly
one tree, however it came about (I-ONE-TREE), and an edit leaves every chunk it does not touch.

The three constants are part of the format: another value is another format string. Two slots at
least halve each level; 128 bounds what a run of ids that never close can do; 32 is the expected
chunk. Blocks chosen never to close a chunk make an insert rewrite about n / 128 nodes: correct,
and bounded. Source: requirements SEQ-1, SEQ-5; prolly trees as in Noms and Dolt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from protocol import cbor
from protocol.errors import ContentError, EncodingError, RopeError
from protocol.ids import DIGEST_BYTES, BlockId, NodeId
from protocol.limits import BLOCKS_MAX, CONTENT_BYTES_MAX

FORMAT: Final = "huginn.rope/1"
CHUNK_SLOTS_MAX: Final = 128
CHUNK_SLOTS_MIN: Final = 2
# 2^32 / 32, big-endian: byte strings compare as the numbers that they write.
CLOSES_BELOW: Final = (2**32 // 32).to_bytes(4, "big")
# Each level at least halves, so BLOCKS_MAX blocks have their root at this level or lower.
LEVEL_MAX: Final = (BLOCKS_MAX - 1).bit_length() - 1
# A full node is 128 slots of at most 1 + 34 + 5 + 9 bytes, and its head.
NODE_BYTES_MAX: Final = 8192


class Entry(NamedTuple):
    """One block of a sequence: its id, and the bytes of its content (0 … CONTENT_BYTES_MAX)."""

    block: BlockId
    logical_bytes: int


class Slot(NamedTuple):
    """One entry of a node: a block (level 0) or a node one level down, with its sums."""

    digest: bytes
    blocks: int
    logical_bytes: int


@dataclass(frozen=True)
class Node:
    level: int
    slots: tuple[Slot, ...]

    @cached_property
    def blocks(self) -> int:
        """Blocks below this node."""
        return sum(slot.blocks for slot in self.slots)

    @cached_property
    def logical_bytes(self) -> int:
        """Bytes of content below this node."""
        return sum(slot.logical_bytes for slot in self.slots)


EMPTY_NODE: Final = Node(0, ())


def closes(length: int, digest: bytes) -> bool:
    """Whether a chunk of `length` slots that ends in `digest` is complete."""
    return length >= CHUNK_SLOTS_MAX or (length >= CHUNK_SLOTS_MIN and digest[:4] < CLOSES_BELOW)


def to_slots(entries: Iterable[Entry]) -> list[Slot]:
    """The level-0 slots of `entries`; raises ContentError for a size that no content has."""
    slots = []
    for block, logical_bytes in entries:
        if type(block) is not BlockId or type(logical_bytes) is not int:
            raise ContentError(
                f"a sequence holds (BlockId, bytes), not ({block!r}, {logical_bytes!r})"
            )
        if not 0 <= logical_bytes <= CONTENT_BYTES_MAX:
            raise ContentError(
                f"{block} is given {logical_bytes} bytes of content, which is not 0 to "
                f"{CONTENT_BYTES_MAX}"
            )
        slots.append(Slot(block.digest, 1, logical_bytes))
    return slots


def to_entry(slot: Slot) -> Entry:
    """The entry that a level-0 slot holds."""
    return Entry(BlockId(slot.digest), slot.logical_bytes)


def encode_node(node: Node) -> bytes:
    """The one encoding of `node`."""
    return cbor.encode([FORMAT, node.level, [list(slot) for slot in node.slots]])


EMPTY_BYTES: Final = encode_node(EMPTY_NODE)
EMPTY_ID: Final = NodeId.of(EMPTY_BYTES)


def decode_node(data: bytes) -> Node:
    """The node whose encoding is `data`.

    Raises RopeError for everything that is wrong with a node by itself: bytes that are not an
    encoding, another format, a level or a sum out of range, more than 128 slots, and a chunk that
    should have closed earlier. What depends on the node's place is `check_place`'s.
    """
    try:
        value = cbor.decode(data, size_max=NODE_BYTES_MAX)
    except EncodingError as error:
        raise RopeError(f"not a rope node: {error.message}", rule=error.rule) from error
    if type(value) is not list or len(value) != 3 or value[0] != FORMAT:
        raise RopeError(f"not a rope node: it must be an array ['{FORMAT}', level, slots]")
    _, level, rows = value
    if type(level) is not int or not 0 <= level <= LEVEL_MAX:
        raise RopeError(f"level {level!r:.40} of a rope node: it must be 0 to {LEVEL_MAX}")
    if type(rows) is not list or len(rows) > CHUNK_SLOTS_MAX:
        raise RopeError(f"a rope node holds an array of at most {CHUNK_SLOTS_MAX} slots")
    slots = tuple(_slot(level, index, row) for index, row in enumerate(rows))
    for length, slot in enumerate(slots[:-1], 1):
        if closes(length, slot.digest):
            raise RopeError(
                f"a chunk of {len(slots)} slots at level {level} should have closed after {length}"
            )
    return Node(level, slots)


def _slot(level: int, index: int, row: cbor.Value) -> Slot:
    if type(row) is not list or len(row) != 3:
        raise RopeError(f"slot {index} of a rope node is not [id, count, bytes]")
    digest, count, logical_bytes = row
    if type(digest) is not bytes or len(digest) != DIGEST_BYTES:
        raise RopeError(
            f"slot {index} of a rope node does not begin with {DIGEST_BYTES} bytes of id"
        )
    if type(count) is not int or not 1 <= count <= (BLOCKS_MAX if level else 1):
        raise RopeError(f"slot {index} at level {level} counts {count!r:.40} blocks")
    if type(logical_bytes) is not int or not 0 <= logical_bytes <= count * CONTENT_BYTES_MAX:
        raise RopeError(f"slot {index} claims {logical_bytes!r:.40} bytes in {count} blocks")
    return Slot(digest, count, logical_bytes)


def check_root(node: Node) -> None:
    """Raises RopeError unless `node` may be a root: the lowest level that has a single node."""
    if node.level and len(node.slots) < 2:
        raise RopeError(
            f"a root at level {node.level} with {len(node.slots)} slots: the node below is the root"
        )
    if node.blocks > BLOCKS_MAX:
        raise RopeError(f"a sequence of {node.blocks} blocks; at most {BLOCKS_MAX} are allowed")


def check_place(node: Node, slot: Slot, level: int, *, last: bool) -> None:
    """Raises RopeError unless `node` may stand where `slot` points: at `level`, with the slot's
    sums, not empty, and closed unless it is the `last` node of its level."""
    if node.level != level:
        raise RopeError(f"a node of level {node.level} stands where level {level} belongs")
    if not node.slots:
        raise RopeError(f"an empty node at level {level} below a root")
    if (node.blocks, node.logical_bytes) != (slot.blocks, slot.logical_bytes):
        raise RopeError(
            f"a node holds {node.blocks} blocks and {node.logical_bytes} bytes, its parent says "
            f"{slot.blocks} and {slot.logical_bytes}"
        )
    if not last and not closes(len(node.slots), node.slots[-1].digest):
        raise RopeError(
            f"an open chunk of {len(node.slots)} slots at level {level} before the last one"
        )
