"""A grammar: the fold that turns blocks into tokens, left to right.

    state, block → (head, content), state

`head` is what closes or separates the turn before the block, and the block's own header; nothing
is emitted after content. So a block's tokens depend on what stands before it and never on what
follows, and a prefix of blocks has a prefix of tokens (SEQ-2). The end of a turn belongs to the
next block, or to the generation opener: what a prompt adds so that the model answers.

Control ids come from here only, by number. Content comes from `Tokenizer.encode`, which cannot
reach them. Each block is tokenized by itself, so concatenation *is* the tokenization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from protocol.assembly import SeparatorGrammar, Template, ToolEncoding
from protocol.blocks import ContextBlock
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds


class State(NamedTuple):
    """Where a fold stands. `turn` is whose turn is open (`""` before the first block); `last`
    what its last part was, where the next separator depends on it. Hashable: with the block id
    and the tokenizer contract it is the key of a block's tokens."""

    turn: str
    last: str


@dataclass(frozen=True, slots=True)
class BlockTokens:
    """One block's tokens: `head` from the grammar, then `content`."""

    head: TokenIds
    content: TokenIds

    @property
    def ids(self) -> TokenIds:
        return self.head + self.content


class Grammar(Protocol):
    """One conversation grammar over one tokenizer. Pure and stateless: all state is `State`.

    `stop_ids` end an answer and are the only denied ids that a sampler may choose; `stop_texts`
    end it where the grammar's boundaries are text (neither is delivered). `deliver` gives an
    answer's text as a client gets it. `step` raises ContentError for a block that the grammar
    cannot render.
    """

    name: str
    tokenizer: Tokenizer
    template: Template
    separator: SeparatorGrammar
    tools: ToolEncoding
    stop_ids: frozenset[int]
    stop_texts: tuple[str, ...]

    def initial(self) -> State: ...

    def step(self, state: State, block: ContextBlock, text: str) -> tuple[BlockTokens, State]: ...

    def opener(self, state: State) -> TokenIds: ...

    def deliver(self, text: str) -> str: ...
