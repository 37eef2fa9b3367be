"""Random conversations through a real grammar, as the segments that a worker is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source, text_block
from protocol.grammar import Grammar
from protocol.ids import TextId
from protocol.messages.assembler import Segment
from protocol.record import object_id
from protocol.tokens import TokenIds, pack

WORDS = ("the", "and", "in", "of a", "raven", "tells", "king", "what", "saw", "é", "€", "🐦")


@dataclass(frozen=True)
class GrammarTalk:
    """Blocks and their texts; adding gives a new conversation."""

    grammar: Grammar
    blocks: tuple[tuple[ContextBlock, str], ...] = field(default=())

    def say(self, role: Role, kind: BlockType, text: str) -> GrammarTalk:
        return self._add(text_block(role, kind, text), text)

    def answer(self, ids: TokenIds) -> GrammarTalk:
        """The model's answer, kept as the ids that were generated."""
        tokenizer = self.grammar.tokenizer
        text = tokenizer.decode(ids).decode("utf-8", "replace")
        block = ContextBlock(
            v=1,
            role=Role.MODEL,
            type=BlockType.MODEL_TURN,
            source=Source(object=TextId.of(text.encode())),
            representation=Representation(
                kind="exact-tokens", tokens=pack(ids), tokenizer=object_id(tokenizer.contract)
            ),
            rendering={},
            trust=True,
        )
        return self._add(block, text)

    def cut(self, blocks: int) -> GrammarTalk:
        return GrammarTalk(self.grammar, self.blocks[:blocks])

    def edit(self, index: int, text: str) -> GrammarTalk:
        """The same conversation with other text in one block."""
        block = self.blocks[index][0]
        changed = (text_block(block.role, block.type, text), text)
        return GrammarTalk(self.grammar, (*self.blocks[:index], changed, *self.blocks[index + 1 :]))

    def spelled(self) -> tuple[list[Segment], TokenIds]:
        """The segments, and the opener that makes the model answer."""
        state = self.grammar.initial()
        found = []
        for block, text in self.blocks:
            tokens, state = self.grammar.step(state, block, text)
            found.append(
                Segment(
                    block=object_id(block),  # type: ignore[arg-type]
                    role=block.role.value,
                    type=block.type.value,
                    head=pack(tokens.head),
                    content=pack(tokens.content),
                )
            )
        return found, self.grammar.opener(state)

    def _add(self, block: ContextBlock, text: str) -> GrammarTalk:
        return GrammarTalk(self.grammar, (*self.blocks, (block, text)))


def some_text(random: Random, words_max: int) -> str:
    """One word to `words_max`, most of them few."""
    count = 1 + int(words_max * random.random() ** 2)
    return " ".join(random.choice(WORDS) for _ in range(count))


def next_input(talk: GrammarTalk, random: Random, words_max: int) -> GrammarTalk:
    """The conversation with the next thing said to the model: a user's turn, at the beginning
    perhaps with instructions, later perhaps after the result of a tool."""
    if not talk.blocks and random.random() < 0.5:
        talk = talk.say(Role.SYSTEM, BlockType.INSTRUCTION, some_text(random, words_max))
    if talk.blocks and random.random() < 0.3:
        talk = talk.say(Role.TOOL, BlockType.TOOL_RESULT, some_text(random, words_max))
    return talk.say(Role.USER, BlockType.USER_TURN, some_text(random, words_max))
