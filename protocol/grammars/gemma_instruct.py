"""`gemma3-it`: the conversation grammar of instruction-tuned Gemma 3 models.

    <bos><start_of_turn>user
    system text

    user text<end_of_turn>
    <start_of_turn>model
    answer

A turn's end belongs to the next turn's head, or to the opener. There are two kinds of turn: the
model's, and the user's, where system text, tool results and files speak too. Blocks of one kind in
a row are parts of one turn and are separated by an empty line (token level: the ids of two line
breaks); an empty part takes no separator after it. Content is trimmed as the model's template
trims, so it neither begins nor ends with a line break, and so tokenizing parts apart gives the
tokens of the whole. A model block's head is what `opener` gives at the same state, always: an
answer stands on exactly the tokens that it was generated on.

On ordinary conversations the ids are those of the model's own template and tokenizer (ASM-5).
Deliberate differences:

1. Control text in content stays text; the template's text is searched for control tokens.
2. Text that looks like a fence's tag is escaped (see `fence`).
3. Blocks of one kind in a row are joined with an empty line; the template raises.
4. System text anywhere but first is a part of the user's turn; the template raises.
5. A conversation that begins with the model's turn is rendered; the template raises.
6. System text alone opens a user turn of its own; the template forgets it.
7. System text is trimmed; the template trims only what follows it.
8. An empty system text adds nothing; the template leaves an empty line.
9. The last turn stays open until the opener: a context does not end with `<end_of_turn>`.
10. After a model's turn the opener continues it, after an empty line, as a merged neighbour would.
11. Tools, files and everything else that is fenced: the template has no rendering for them.
12. A message's `name` is left out where its text stands plain, as the template does, but is an
    attribute where it is fenced.

Known and inherent: the template gives system text no turn of its own, so within one user turn
nothing but trust, by fencing, keeps trusted parts apart.
"""

from __future__ import annotations

from typing import Final

from protocol.assembly import SeparatorGrammar, Template, ToolEncoding
from protocol.blocks import ContextBlock, Role
from protocol.errors import ContentError
from protocol.grammar import BlockTokens, State
from protocol.grammars.content import content_ids, exact_ids
from protocol.grammars.rendering import render
from protocol.grammars.tools import TOOLS
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds

_CONTROL: Final = ("bos", "eos", "start_of_turn", "end_of_turn")
_PART: Final = "part"
_EMPTY: Final = ""


class GemmaInstruct:
    """Implements protocol.grammar.Grammar. `State.turn` is "", "user" or "model"; `State.last` is
    "part" when the next part of the same turn needs a separator.

    Raises ContentError for a tokenizer whose contract lacks one of Gemma's four control tokens.
    """

    name = "gemma3-it"
    template = Template(
        v=1,
        kind="template",
        name="gemma3-it",
        version=1,
        headers={"user": "<start_of_turn>user\n", "model": "<start_of_turn>model\n"},
    )
    separator = SeparatorGrammar(
        v=1,
        kind="separator",
        name="gemma3-it",
        version=1,
        separators={"turn": "<end_of_turn>\n", "part": "\n\n"},
    )
    tools: ToolEncoding = TOOLS
    stop_texts: tuple[str, ...] = ()

    def __init__(self, tokenizer: Tokenizer) -> None:
        control = tokenizer.contract.control
        missing = [name for name in _CONTROL if name not in control]
        if missing:
            raise ContentError(
                f"grammar {self.name} needs control tokens that the vocabulary lacks: "
                f"{', '.join(missing)}. A model without them takes gemma3-transcript"
            )
        self.tokenizer = tokenizer
        self.stop_ids = frozenset((control["end_of_turn"], control["eos"]))
        self._bos: TokenIds = (control["bos"],)
        self._close: TokenIds = (control["end_of_turn"], *content_ids(tokenizer, "\n"))
        self._open: dict[str, TokenIds] = {
            turn: (control["start_of_turn"], *content_ids(tokenizer, f"{turn}\n"))
            for turn in ("user", "model")
        }
        self._part = content_ids(tokenizer, "\n\n")

    def initial(self) -> State:
        return State(turn="", last=_EMPTY)

    def step(self, state: State, block: ContextBlock, text: str) -> tuple[BlockTokens, State]:
        """The block's tokens at `state` and the state after it. Raises ContentError."""
        turn = "model" if block.role is Role.MODEL else "user"
        content = exact_ids(block, self.tokenizer, _forges_nothing)
        if content is None:
            content = content_ids(self.tokenizer, render(block, text))
        after = State(turn=turn, last=_PART if content else _EMPTY)
        return BlockTokens(head=self._head(state, turn), content=content), after

    def opener(self, state: State) -> TokenIds:
        """What a prompt adds so that the model answers: a model block's head at `state`."""
        return self._head(state, "model")

    def deliver(self, text: str) -> str:
        """An answer's text as it is: `end_of_turn` is no part of it."""
        return text

    def _head(self, state: State, turn: str) -> TokenIds:
        if not state.turn:
            return self._bos + self._open[turn]
        if state.turn != turn:
            return self._close + self._open[turn]
        return self._part if state.last == _PART else ()


def _forges_nothing(_: str) -> bool:
    """Turns are opened by ids, and ids are checked: no text of an answer can open one."""
    return False
