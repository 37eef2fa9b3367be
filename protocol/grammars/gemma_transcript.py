"""`gemma3-transcript`: a conversation as plain text, for base Gemma models.

    <bos>System: You are a helpful assistant.
    Q: What is the capital of France?
    A: Paris.

A base model has never seen control tokens; it continues a transcript. A block is a header at the
start of a line and its text: `System:` for trusted system blocks, `Context:` for everything else
that is fenced and not the model's (files, reminders, tool results), `Q:` for the user, `A:` for the
model. Every block has a header of its own: blocks are not merged. The token level is exact: a
header's ids are those of a line break and the header (without the line break at the beginning,
after BOS, the one control token), and content's are those of a space and the trimmed text, because
tokenizing "A: " and the text apart gives ids that the model has seldom seen. Empty content has no
tokens. A delivered answer is trimmed.

Here the boundaries are text, so content could forge them. The rule: *a header is a line, as
decoded, that begins with blanks or none and then one of the four headers*. Content whose decoded
tokens have such a line gets "> " in front of the header there, as quoted mail has (and a line that
is already so quoted gets one more, so two contents never render alike). It is the decoded tokens
that are looked at, again until there is none: a vocabulary may read a character as a space. The
content's own first line follows its header on the same line, and content is trimmed, so neither
an end nor a beginning joins with a neighbour to make one. A generated answer stops at a header.
"""

from __future__ import annotations

import re
from typing import Final

from protocol.assembly import SeparatorGrammar, Template, ToolEncoding
from protocol.blocks import ContextBlock, Role
from protocol.errors import ContentError
from protocol.grammar import BlockTokens, State
from protocol.grammars.content import content_ids, exact_ids
from protocol.grammars.rendering import is_fenced, render
from protocol.grammars.tools import TOOLS
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds

HEADERS: Final = {"system": "System:", "context": "Context:", "user": "Q:", "model": "A:"}

# What `str.splitlines` takes for the end of a line.
_LINE_ENDS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_HEADER: Final = "|".join(map(re.escape, HEADERS.values()))
# A header, perhaps quoted already, at the start of a line that is not the first.
# Blanks end with their line, so that the search stays linear in a run of line breaks.
_BLANKS: Final = rf"[^\S{_LINE_ENDS}]*+"
_FORGED: Final = re.compile(rf"(?<=[{_LINE_ENDS}])({_BLANKS})(?=(?:> )*+(?:{_HEADER}))")
_HEADER_LINE: Final = re.compile(rf"[{_LINE_ENDS}]{_BLANKS}(?:{_HEADER})")


class GemmaTranscript:
    """Implements protocol.grammar.Grammar. `State.turn` is "" at the beginning, then "open".

    Raises ContentError for a tokenizer whose contract names no BOS or no end of text.
    """

    name = "gemma3-transcript"
    template = Template(
        v=1, kind="template", name="gemma3-transcript", version=1, headers=dict(HEADERS)
    )
    separator = SeparatorGrammar(
        v=1,
        kind="separator",
        name="gemma3-transcript",
        version=1,
        separators={"turn": "\n", "content": " ", "quote": "> "},
    )
    tools: ToolEncoding = TOOLS
    stop_texts: tuple[str, ...] = tuple(f"\n{header}" for header in HEADERS.values())

    def __init__(self, tokenizer: Tokenizer) -> None:
        control = tokenizer.contract.control
        missing = [name for name in ("bos", "eos") if name not in control]
        if missing:
            raise ContentError(
                f"grammar {self.name} needs control tokens that the vocabulary lacks: "
                f"{', '.join(missing)}"
            )
        self.tokenizer = tokenizer
        # An end of turn, where a vocabulary has one, would also be the end of an answer.
        ends = ("eos", "end_of_turn")
        self.stop_ids = frozenset(control[name] for name in ends if name in control)
        self._first: dict[str, TokenIds] = {
            turn: (control["bos"], *content_ids(tokenizer, header))
            for turn, header in HEADERS.items()
        }
        self._next: dict[str, TokenIds] = {
            turn: content_ids(tokenizer, f"\n{header}") for turn, header in HEADERS.items()
        }

    def initial(self) -> State:
        return State(turn="", last="")

    def step(self, state: State, block: ContextBlock, text: str) -> tuple[BlockTokens, State]:
        """The block's tokens at `state` and the state after it. Raises ContentError."""
        content = exact_ids(block, self.tokenizer, has_header_line)
        if content is None:
            content = self._content(render(block, text))
        head = self._head(state, _turn(block))
        return BlockTokens(head=head, content=content), State(turn="open", last="")

    def opener(self, state: State) -> TokenIds:
        """What a prompt adds so that the model answers: a model block's head at `state`."""
        return self._head(state, "model")

    def deliver(self, text: str) -> str:
        """An answer's text, trimmed: it begins with the space that follows a header."""
        return text.strip()

    def _head(self, state: State, turn: str) -> TokenIds:
        return self._next[turn] if state.turn else self._first[turn]

    def _content(self, text: str) -> TokenIds:
        if not text:
            return ()
        shown = f" {quote_headers(text)}"
        while True:
            ids = content_ids(self.tokenizer, shown)
            decoded = self.tokenizer.decode(ids).decode("utf-8", "replace")
            if not has_header_line(decoded):
                return ids
            # The tokens say more than the text did: what they say is quoted in its turn, and a
            # quoted line is no header any more, so this ends.
            shown = quote_headers(decoded)


def quote_headers(text: str) -> str:
    """`text` with "> " before each header that begins a line, but not on its first line."""
    return _FORGED.sub(r"\1> ", text)


def has_header_line(text: str) -> bool:
    """Whether a line of `text` after its first begins like a header."""
    return _HEADER_LINE.search(text) is not None


def _turn(block: ContextBlock) -> str:
    if block.role is Role.MODEL:
        return "model"
    if block.role is Role.SYSTEM and block.trust:
        return "system"
    return "context" if is_fenced(block) else "user"
