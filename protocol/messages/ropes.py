"""Asked of the ropes room: objects, sequences, and the edits that make new ones.

Everything is read through the handle's view; what is outside it answers like what does not exist.
"""

from __future__ import annotations

from typing import Final

from protocol.assembly import ContextAssembly
from protocol.blocks import ContextBlock
from protocol.ids import BlockId, ContextId, ContractId, NodeId, SequenceId, TransformId
from protocol.messages import Empty, Operation
from protocol.record import Record


class StoredObject(Record):
    """One object: the text form of its id and its body."""

    id: str
    body: bytes


class GetObjects(Record):
    """Text ids; the answer has them in the same order, or it is NotVisible."""

    ids: list[str]


class Objects(Record):
    """The objects that were asked for, in the order of asking."""

    objects: list[StoredObject]


class NewBlock(Record):
    """A block and its content, UTF-8. The block's id is computed, never accepted."""

    block: ContextBlock
    content: bytes


class Entry(Record):
    """A block already stored in this view, and its content's length in bytes."""

    block: BlockId
    content_bytes: int


class AssemblyFields(Record):
    """A ContextAssembly less its sequence; to the ropes room, ids and nothing more."""

    model_contract: ContractId
    tokenizer_contract: ContractId
    conversation_template: ContractId
    separator_grammar: ContractId
    budget_policy: ContractId
    tool_encoding: ContractId
    media_encoding: ContractId
    reference_transform: TransformId

    def over(self, sequence: SequenceId) -> ContextAssembly:
        """The assembly of `sequence` under these contracts."""
        return ContextAssembly(
            format_version=1,
            sequence=sequence,
            model_contract=self.model_contract,
            tokenizer_contract=self.tokenizer_contract,
            conversation_template=self.conversation_template,
            separator_grammar=self.separator_grammar,
            budget_policy=self.budget_policy,
            tool_encoding=self.tool_encoding,
            media_encoding=self.media_encoding,
            reference_transform=self.reference_transform,
        )


class Commit(Record):
    """Keep the first `keep` blocks of `base` (None: the empty sequence), append `entries`.

    `blocks` are the new ones among them, stored in the same transaction as the new rope nodes,
    the sequence and, where `assembly` stands, the assembly that names it.
    """

    namespace: str
    keep: int
    blocks: list[NewBlock]
    entries: list[Entry]
    base: NodeId | None = None
    assembly: AssemblyFields | None = None


class Committed(Record):
    """`amplification_nodes`: how many rope nodes the edit wrote. `public`: how many of the
    sequence's first blocks are published, absent for none."""

    root: NodeId
    sequence: SequenceId
    blocks: int
    amplification_nodes: int
    context: ContextId | None = None
    public: int | None = None


class ReadSequence(Record):
    """Blocks start … stop-1 (stop None: to the end) with their contents."""

    sequence: SequenceId
    start: int
    stop: int | None = None


class SequenceBlocks(Record):
    """The blocks asked for. `root` and `count` are those of the whole sequence."""

    root: NodeId
    count: int
    blocks: list[NewBlock]


class ReadTree(Record):
    """The nodes of a sequence's rope, as a tree of ids, for people who look."""

    sequence: SequenceId


class TreeNode(Record):
    """One node. `content_bytes` and `blocks` count all that lies below it."""

    node: NodeId
    level: int
    blocks: int
    content_bytes: int
    children: list[bytes]


class Tree(Record):
    """Nodes in depth-first order, root first; a level-0 node's children are block ids."""

    root: NodeId
    nodes: list[TreeNode]


class Publish(Record):
    """Make a block public: whoever's sequence begins with public blocks shares their states."""

    block: ContextBlock
    content: bytes


class Withdraw(Record):
    """Make a block private again. It is answered when the states that it was part of are gone from
    the public domain; NotVisible for a block that is not public (any more)."""

    block: BlockId


class Publication(Record):
    """A block that is public: what it is, and its content's length in bytes."""

    block: BlockId
    role: str
    type: str
    content_bytes: int
    name: str | None = None


class Publications(Record):
    """Every block that is public, in the order of their ids."""

    blocks: list[Publication]


OPERATIONS: Final[dict[str, Operation]] = {
    "get": Operation(GetObjects, Objects, "read"),
    "commit": Operation(Commit, Committed, "write"),
    "read": Operation(ReadSequence, SequenceBlocks, "read"),
    "tree": Operation(ReadTree, Tree, "read"),
    "publish": Operation(Publish, Publication, "operate"),
    "withdraw": Operation(Withdraw, Publication, "operate"),
    "publications": Operation(Empty, Publications, "operate"),
}
