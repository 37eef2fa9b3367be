"""Proofs: a statement about a sequence that is verified from its root alone, without the store.

A proof carries the encodings of the nodes that the question reads, in the order in which it reads
them, and its verifier asks the very same question of exactly those nodes: each is hashed against
the id that is due next, shape and sums are checked as on every load, and a node too few or too
many refuses the proof. A proof is about the tree under the root given; that this root is the root
of a whole, right tree is for whoever accepted the root (SEQ-6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from protocol.errors import ContentError, CorruptObject, RopeError
from protocol.ids import BlockId, NodeId, PrefixId
from protocol.record import Record
from protocol.rope.node import Entry
from protocol.rope.read import NodeSource
from protocol.rope.tree import Rope, prefix_id

Answer = TypeVar("Answer")


class InclusionProof(Record):
    """That `block` stands at `index` (from 0) of a sequence. `nodes`: the path, root first."""

    v: Literal[1]
    index: int
    block: BlockId
    nodes: tuple[bytes, ...]


class PrefixProof(Record):
    """That the first `blocks` blocks of a sequence are the whole sequence under `prefix`."""

    v: Literal[1]
    blocks: int
    prefix: NodeId
    nodes: tuple[bytes, ...]


@dataclass(frozen=True)
class Included:
    """What a verified inclusion proof says: the entry, its index, and the blocks there are."""

    entry: Entry
    index: int
    count: int


def prove_inclusion(rope: Rope, index: int) -> InclusionProof:
    """The proof that block `index` is what it is; raises as `Rope.get` does."""
    entry, nodes = _record(rope, lambda reread: reread.get(index))
    return InclusionProof(v=1, index=index, block=entry.block, nodes=nodes)


def verify_inclusion(root: NodeId, proof: InclusionProof) -> Included:
    """What `proof` shows of the sequence under `root`; raises RopeError if it does not hold."""
    included = _replay(
        root, proof.nodes, lambda rope: Included(rope.get(proof.index), proof.index, rope.count)
    )
    if included.entry.block != proof.block:
        raise RopeError(
            f"block {proof.index} is {included.entry.block}, the proof says {proof.block}"
        )
    return included


def prove_prefix(rope: Rope, blocks: int) -> PrefixProof:
    """The proof of the first `blocks` blocks' own root; raises as `Rope.prefix_root` does."""
    prefix, nodes = _record(rope, lambda reread: reread.prefix_root(blocks))
    return PrefixProof(v=1, blocks=blocks, prefix=prefix, nodes=nodes)


def verify_prefix(root: NodeId, proof: PrefixProof) -> PrefixId:
    """The id of the prefix that `proof` shows of the sequence under `root`: the sequence under
    `proof.prefix` is its first `proof.blocks` blocks. Raises RopeError if it does not hold."""
    found = _replay(root, proof.nodes, lambda rope: rope.prefix_root(proof.blocks))
    if found != proof.prefix:
        raise RopeError(f"the first {proof.blocks} blocks have root {found}, not {proof.prefix}")
    return prefix_id(proof.blocks, found)


def _record(rope: Rope, question: Callable[[Rope], Answer]) -> tuple[Answer, tuple[bytes, ...]]:
    nodes: list[bytes] = []

    def source(wanted: NodeId) -> bytes:
        nodes.append(rope.source(wanted))
        return nodes[-1]

    return question(Rope(rope.root, source)), tuple(nodes)


def _replay(root: NodeId, nodes: tuple[bytes, ...], question: Callable[[Rope], Answer]) -> Answer:
    source, unread = _in_order(nodes)
    try:
        answer = question(Rope(root, source))
    except (ContentError, CorruptObject) as error:
        # The prover's fault here, not the store's.
        raise RopeError(f"the proof does not hold: {error.message}") from error
    if unread():
        raise RopeError(f"the proof carries {unread()} nodes that it does not need")
    return answer


def _in_order(nodes: tuple[bytes, ...]) -> tuple[NodeSource, Callable[[], int]]:
    position = 0

    def source(wanted: NodeId) -> bytes:
        nonlocal position
        if position == len(nodes):
            raise RopeError(f"the proof lacks {wanted}")
        position += 1
        return nodes[position - 1]

    return source, lambda: len(nodes) - position
