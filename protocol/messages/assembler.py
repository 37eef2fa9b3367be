"""Asked of the assembler room: this sequence under this contract is this context."""

from __future__ import annotations

from typing import Final, Literal

from protocol.assembly import ContextAssembly
from protocol.ids import BlockId, ContextId, SequenceId
from protocol.messages import Operation
from protocol.messages.ropes import NewBlock, Tree
from protocol.record import Record


class Assemble(Record):
    """Assemble blocks, given whole or as a stored sequence (exactly one of the two).

    `profile` names the runtime profile whose contracts apply; `template` another grammar in place
    of its own. `tokens_max` is the budget; `policy` says what happens beyond it. `store` false
    assembles without keeping anything: no id is minted that could be read back. `else_unstored`:
    where the disk is full it is assembled as with `store` false, and the answer says so; else it
    is refused (DiskFull).
    """

    namespace: str
    profile: str
    policy: Literal["refuse", "drop-oldest-turns"]
    tokens_max: int
    keep_turns: int
    store: bool
    template: str | None = None
    blocks: list[NewBlock] | None = None
    sequence: SequenceId | None = None
    else_unstored: bool | None = None


class Segment(Record):
    """One block of a token stream. `head` and `content` are packed ids (see protocol.tokens)."""

    block: BlockId
    role: str
    type: str
    head: bytes
    content: bytes


class Assembled(Record):
    """A context and its token stream by block. `opener` is not part of the context: it is what a
    prompt adds so that the model answers. `dropped` holds the indices of blocks that the budget
    policy left out. `stop_texts` and `stop_ids` are the grammar's ends of an answer. `public`: the
    assembler's statement of how many of the first segments are public blocks (see
    protocol.publication), absent for none. `unstored`: it was to be stored and the disk was full,
    so its ids name nothing that can be read back; absent otherwise."""

    context: ContextId
    sequence: SequenceId
    segments: list[Segment]
    opener: bytes
    tokens: int
    dropped: list[int]
    stop_ids: list[int]
    stop_texts: list[str]
    public: bytes | None = None
    unstored: bool | None = None


class Show(Record):
    """Ask for one context. `tokens`: its token stream too."""

    context: ContextId
    tokens: bool


class Shown(Record):
    """A context, for those who may read all of it. `segments` only if tokens were asked for."""

    assembly: ContextAssembly
    sequence: SequenceId
    blocks: list[NewBlock]
    segments: list[Segment] | None = None


class ShowTree(Record):
    """Ask for the rope of a context's sequence; the answer is the ropes room's `Tree`."""

    context: ContextId


class DiffContexts(Record):
    """Ask where the contexts `a` and `b` part."""

    a: ContextId
    b: ContextId


class ContextDifference(Record):
    """`token_index` is where the token streams part: the length of their common prefix in tokens.

    The index fields and `reason` are absent where blocks and tokens are equal. Reasons: order,
    role, content, rendering, inserted, removed; `contract` where equal blocks have other tokens.
    `contracts` names the fields of the two assemblies that differ, sequence aside.
    """

    equal_blocks: int
    contracts: list[str]
    index: int | None = None
    reason: str | None = None
    token_index: int | None = None


OPERATIONS: Final[dict[str, Operation]] = {
    "assemble": Operation(Assemble, Assembled, "assemble"),
    "show": Operation(Show, Shown, "read"),
    "tree": Operation(ShowTree, Tree, "read"),
    "diff": Operation(DiffContexts, ContextDifference, "read"),
}
