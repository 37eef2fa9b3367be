"""The reference transform: blocks and a grammar in, token ids out. Plain, slow, obviously right.

`fold` is the definition of what tokens a context has (ASM-2). It is an identified object itself:
REFERENCE holds its specification and the digest of its test vectors (`tests/golden/
transform.json`), and its id stands in every ContextAssembly.

A cache of a block's tokens is memory, not another transform. A true alternate (another tokenizer
library, say) is used for a block only after that very output was compared with the reference's:
see VerifiedAlternate (ASM-4).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, cast

from protocol.assembly import Transform
from protocol.blocks import ContextBlock
from protocol.errors import ContentError
from protocol.grammar import BlockTokens, Grammar, State
from protocol.ids import BlockId, ContractId, TransformId
from protocol.record import Record, object_id
from protocol.tokens import pack

SPECIFICATION: Final = """\
Input: a grammar over a tokenizer, and a sequence of (block, text) where text is the block's source
object, read as UTF-8. Output: for each block in order its token ids, head then content.

1. state := grammar.initial().
2. For each (block, text) in order: (tokens, state) := grammar.step(state, block, text).
3. The context's token stream is the concatenation of all blocks' heads and contents.
4. A prompt is the token stream followed by grammar.opener(state). The opener is no part of the
   context.

A step depends on nothing but its three arguments. Its content is tokenized by itself, with every
control and structural id of the vocabulary unreachable; a trusted answer of the model that is kept
as exact tokens of the same tokenizer contract contributes those ids, after each was checked to be
inside the vocabulary and outside the deny set. An id of the deny set occurs in heads only.
"""

# SHA-256 of the file of test vectors, which a test recomputes.
VECTORS_DIGEST: Final = bytes.fromhex(
    "c2e643815fd1ee1d65f887ebe26f72b29442826a49ca7c088969ba0f5a018e87"
)
REFERENCE: Final = Transform(
    v=1, name="huginn.fold", specification=SPECIFICATION, vectors_digest=VECTORS_DIGEST
)
REFERENCE_ID: Final = cast("TransformId", object_id(REFERENCE))


def fold(grammar: Grammar, blocks: Iterable[tuple[ContextBlock, str]]) -> list[BlockTokens]:
    """Every block's tokens, in order. Raises ContentError for a block that cannot be rendered."""
    return fold_to_state(grammar, blocks)[0]


def fold_to_state(
    grammar: Grammar, blocks: Iterable[tuple[ContextBlock, str]]
) -> tuple[list[BlockTokens], State]:
    """As `fold`, with the state after the last block, which `grammar.opener` wants."""
    state = grammar.initial()
    stream: list[BlockTokens] = []
    for block, text in blocks:
        tokens, state = grammar.step(state, block, text)
        stream.append(tokens)
    return stream, state


class Mismatch(Record):
    """Evidence that an alternate gave other tokens than the reference for one block at one state.

    `alternate` is absent where it raised instead; `failure` then says what. Ids are packed.
    """

    grammar: str
    tokenizer: ContractId
    block: BlockId
    turn: str
    last: str
    reference: bytes
    alternate: bytes | None = None
    failure: str | None = None


class VerifiedAlternate:
    """An alternate implementation of one grammar under one contract, used only where verified.

    `step` is the reference's, faster where it may be. The first time that a block is met at a
    state, both run and their outputs are compared; the digest of the agreed output is remembered
    (at most `items_max`, least recently used first out). From then on the alternate runs alone and
    its output is used only if it still has that digest. A mismatch, or an alternate that raises:
    the reference's output is used, `evidence` gets a record, and the alternate is disabled for
    this contract for good. An output that was not verified is never returned.

    Raises ContentError for a pair of grammars that are not of one contract.
    """

    def __init__(self, reference: Grammar, alternate: Grammar, *, items_max: int) -> None:
        for part in ("name", "template", "separator", "tools"):
            if getattr(reference, part) != getattr(alternate, part):
                raise ContentError(f"the alternate has another {part} than the reference")
        if reference.tokenizer.contract != alternate.tokenizer.contract:
            raise ContentError("the alternate has another tokenizer contract than the reference")
        if items_max < 1:
            raise ContentError(f"at least one verified output is remembered, not {items_max}")
        self.reference = reference
        self.alternate = alternate
        self.evidence: list[Mismatch] = []
        self._items_max = items_max
        self._contract = cast("ContractId", object_id(reference.tokenizer.contract))
        self._verified: OrderedDict[tuple[BlockId, State], bytes] = OrderedDict()

    @property
    def enabled(self) -> bool:
        return not self.evidence

    def step(self, state: State, block: ContextBlock, text: str) -> tuple[BlockTokens, State]:
        """As `reference.step`, and with exactly its results and errors."""
        if not self.enabled:
            return self.reference.step(state, block, text)
        key = (cast("BlockId", object_id(block)), state)
        proposal = self._propose(state, block, text)
        if not isinstance(proposal, str) and self._verified.get(key) == _digest(text, *proposal):
            self._verified.move_to_end(key)
            return proposal
        result = self.reference.step(state, block, text)
        if proposal == result:
            self._remember(key, _digest(text, *result))
        else:
            self._disable(key, proposal, result[0])
        return result

    def _propose(
        self, state: State, block: ContextBlock, text: str
    ) -> tuple[BlockTokens, State] | str:
        try:
            result = self.alternate.step(state, block, text)
            pack(result[0].ids)
            return result
        except Exception as error:  # whatever the alternate does, the reference decides
            return f"{type(error).__name__}: {error}"

    def _remember(self, key: tuple[BlockId, State], digest: bytes) -> None:
        self._verified[key] = digest
        self._verified.move_to_end(key)
        if len(self._verified) > self._items_max:
            self._verified.popitem(last=False)

    def _disable(
        self,
        key: tuple[BlockId, State],
        proposal: tuple[BlockTokens, State] | str,
        reference: BlockTokens,
    ) -> None:
        block, state = key
        failure = proposal if isinstance(proposal, str) else None
        self.evidence.append(
            Mismatch(
                grammar=self.reference.name,
                tokenizer=self._contract,
                block=block,
                turn=state.turn,
                last=state.last,
                reference=pack(reference.ids),
                alternate=None if isinstance(proposal, str) else pack(proposal[0].ids),
                failure=failure,
            )
        )
        self._verified.clear()


def _digest(text: str, tokens: BlockTokens, state: State) -> bytes:
    """The SHA-256 of one step's text and output, each part behind its length.

    The text is in it because a block names its text by id only: another text is another step."""
    parts = (
        text.encode("utf-8", "surrogatepass"),
        pack(tokens.head),
        pack(tokens.content),
        state.turn.encode("utf-8"),
        state.last.encode("utf-8"),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
