"""What the rope tests share: entries by kind, a counting store, and an independent builder."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence

import cbor2
from hypothesis import strategies as st

from protocol.errors import NotVisible
from protocol.ids import BlockId, NodeId
from protocol.rope import Diff, Entry, Rope, build
from protocol.rope.node import Node, Slot, encode_node


def entry(number: int, size: int | None = None) -> Entry:
    """An entry with an evenly distributed id, one for each number."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return Entry(BlockId(digest), number % 1000 if size is None else size)


def never(number: int = 0) -> Entry:
    """An entry that never closes a chunk of its own accord."""
    return Entry(BlockId(b"\xff" * 4 + number.to_bytes(28, "big")), 7)


def always(number: int = 0) -> Entry:
    """An entry that closes a chunk wherever it may."""
    return Entry(BlockId(bytes(4) + number.to_bytes(28, "big")), 9)


# Kinds of content: distinct blocks, few blocks over and over, one block only, hostile ids.
POOLS: dict[str, list[Entry]] = {
    "distinct": [entry(number) for number in range(100_000)],
    "few": [entry(number) for number in range(3)] + [never(), always()],
    "one": [entry(5)],
    "one never closing": [never()],
    "one always closing": [always()],
    "never closing": [never(number) for number in range(50)],
    "always closing": [always(number) for number in range(50)],
    "both": [never(), always()],
}


def draw_entries(pool: str, count: int, seed: int) -> list[Entry]:
    return random.Random(seed).choices(POOLS[pool], k=count)


def sequences(blocks_max: int) -> st.SearchStrategy[list[Entry]]:
    """Sequences of every kind, most of them long enough for several nodes."""
    return st.builds(
        draw_entries,
        st.sampled_from(sorted(POOLS)),
        st.integers(0, blocks_max) | st.integers(0, 4),
        st.integers(0, 2**32),
    )


class Store:
    """A node source that counts its reads and has only what was put in."""

    def __init__(self, nodes: dict[NodeId, bytes] | None = None) -> None:
        self.nodes = dict(nodes or {})
        self.reads: list[NodeId] = []

    def __call__(self, wanted: NodeId) -> bytes:
        self.reads.append(wanted)
        if wanted not in self.nodes:
            raise NotVisible(f"no node {wanted}")
        return self.nodes[wanted]

    def put(self, level: int, slots: Iterable[Slot]) -> Slot:
        """Stores a node of whatever shape; the slot that points to it."""
        node = Node(level, tuple(slots))
        data = encode_node(node)
        made = NodeId.of(data)
        self.nodes[made] = data
        return Slot(made.digest, node.blocks, node.logical_bytes)


def stored(entries: Sequence[Entry]) -> tuple[Rope, Store]:
    """A fresh build of `entries`, opened, with the reads counted from here on."""
    edit = build(entries)
    store = Store(edit.nodes)
    rope = Rope(edit.root, store)
    store.reads.clear()
    return rope, store


def naive_build(entries: Sequence[Entry]) -> tuple[NodeId, dict[NodeId, bytes]]:
    """The tree by the format's words alone, sharing no code with the package."""
    nodes: dict[NodeId, bytes] = {}
    rows = [[block.digest, 1, size] for block, size in entries]
    level = 0
    while True:
        chunks: list[list[list[object]]] = [[]]
        for row in rows:
            if _complete(chunks[-1]):
                chunks.append([])
            chunks[-1].append(row)
        rows = []
        for chunk in chunks:
            data = cbor2.dumps(["huginn.rope/1", level, chunk])
            head = b"\x0dhuginn.rope/1" + len(data).to_bytes(8, "big")
            digest = hashlib.sha256(head + data).digest()
            nodes[NodeId(digest)] = data
            rows.append([digest, sum(row[1] for row in chunk), sum(row[2] for row in chunk)])
        if len(rows) == 1:
            return NodeId(rows[0][0]), nodes
        level += 1


def _complete(chunk: list[list[object]]) -> bool:
    if len(chunk) < 2:
        return False
    return len(chunk) == 128 or int.from_bytes(chunk[-1][0][:4], "big") < 2**32 / 32


def patched(flat: Sequence[Entry], difference: Diff) -> list[Entry]:
    """`flat` with the runs of `difference` applied, each checked against what it says."""
    result: list[Entry] = []
    at = 0
    for run in difference.runs:
        result += flat[at : run.a]
        assert len(result) == run.b
        at = run.a + len(run.removed)
        assert tuple(flat[run.a : at]) == run.removed
        assert run.removed or run.inserted
        result += run.inserted
    return result + list(flat[at:])
