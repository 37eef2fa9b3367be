"""Hostile texts from end to end: appended to a source, told by a turn, and rendered by a grammar.

Whatever a stranger emits, the prompt has the blocks, the boundaries and the control ids that it has
with harmless text in its place, under vocabularies that have control tokens and a byte for
everything: the default model's, and the small model's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from actors.events.reminder import HEADING, is_reminder
from actors.events.sessions import SessionLimits
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from protocol import cbor
from protocol.blocks import Role
from protocol.grammars import GRAMMARS, grammar
from protocol.messages.events import BegunTurn, KindRow, NewEvent, RegisterKind
from protocol.messages.ropes import NewBlock
from protocol.tokenizer import Tokenizer
from tests import default_gemma, tiny_gemma
from tests.block_samples import Pair
from tests.events_rooms import NAMESPACE, House, said, user
from tests.hostile_texts import HOSTILE, everywhere, lines_of, structure

KIND = f"{NAMESPACE}.Said"
BUDGET = SessionLimits().render_tokens
# Under the small model's vocabulary nearly every byte is a token, and every line a few hundred.
WIDE_TOKENS = 3000
MANY = 100
LINE = rf"huskies · \d\d-\d\d \d\d:\d\d · {KIND}: .*"


@dataclass
class Telling:
    """A house with one source, in which each text is told to a new session."""

    tokenizer: Tokenizer
    house: House = field(init=False)

    async def start(self) -> Telling:
        self.house = await House(tokenizer=self.tokenizer).start()
        await self.house.source("huskies")
        ask = RegisterKind(namespace=NAMESPACE, kind=KIND, schema=b"{}")
        await self.house.ask("register_kind", ask, KindRow)
        return self

    async def told(self, *events: NewEvent, tokens_max: int) -> BegunTurn:
        """What a turn begins with that has these events to tell."""
        session = await self.house.open(since="now")
        await self.house.emit("huskies", *events)
        history = [said(Role.SYSTEM, "Be brief."), user("Hello")]
        return await self.house.begin(session.id, history=history, tokens_max=tokens_max)


@pytest.fixture(
    params=[
        "tiny",
        pytest.param("default", marks=pytest.mark.model),
    ]
)
async def telling(request: pytest.FixtureRequest) -> AsyncIterator[Telling]:
    tiny = request.param == "tiny"
    tokenizer = LlamaTokenizer(tiny_gemma.cached()) if tiny else default_gemma.tokenizer()
    telling = await Telling(tokenizer).start()
    yield telling
    await telling.house.room.drain()


def event(text: str) -> NewEvent:
    """With `text` everywhere, as a client would send it."""
    fields = everywhere(text)
    return NewEvent(kind=KIND, **{**fields, "body": cbor.encode(fields["body"])})  # type: ignore[arg-type]


def pairs(blocks: list[NewBlock]) -> list[Pair]:
    return [(block.block, block.content.decode("utf-8")) for block in blocks]


def reminder(begun: BegunTurn) -> NewBlock:
    (found,) = [block for block in begun.blocks if is_reminder(block)]
    return found


def structures(begun: BegunTurn, tokenizer: Tokenizer) -> dict[str, list[object]]:
    """By grammar."""
    return {
        name: structure(grammar(name, tokenizer), pairs(begun.blocks)) for name in sorted(GRAMMARS)
    }


def tokens_of(block: NewBlock, name: str, tokenizer: Tokenizer) -> int:
    of = grammar(name, tokenizer)
    tokens, _ = of.step(of.initial(), block.block, block.content.decode("utf-8"))
    return len(tokens.ids)


@pytest.mark.req("ASM-3", "EVT-4")
async def test_what_is_told_of_hostile_texts_changes_no_structure(telling: Telling) -> None:
    """Each told whole; a megabyte too, within the default budget."""
    tokenizer = telling.tokenizer
    harmless = structures(await telling.told(event("harmless"), tokens_max=WIDE_TOKENS), tokenizer)
    for text in HOSTILE:
        begun = await telling.told(event(text), tokens_max=WIDE_TOKENS)
        assert begun.injected == 1, "told whole"
        assert structures(begun, tokenizer) == harmless, text[:40]
        heading, line = lines_of(reminder(begun).content.decode("utf-8"))
        assert heading == HEADING
        assert re.fullmatch(LINE, line)


@pytest.mark.req("ASM-3", "EVT-4")
async def test_what_is_folded_of_hostile_texts_changes_no_structure(telling: Telling) -> None:
    """Many events with the same text: the newest whole, the others in a line of their own."""
    tokenizer = telling.tokenizer
    ask = [event("harmless")] * MANY
    harmless = structures(await telling.told(*ask, tokens_max=WIDE_TOKENS), tokenizer)
    for text in HOSTILE:
        ask = [event(text[:300])] * MANY
        begun = await telling.told(*ask, tokens_max=WIDE_TOKENS)
        assert 0 < begun.injected < MANY
        assert structures(begun, tokenizer) == harmless, text[:40]
        heading, *lines = lines_of(reminder(begun).content.decode("utf-8"))
        assert heading == HEADING
        assert all(re.fullmatch(rf"{LINE}|and \d+ more events?", line) for line in lines), lines
        assert sum(f", {MANY - begun.injected} times" in line for line in lines) == 1


@pytest.mark.req("EVT-4")
async def test_a_megabyte_is_told_within_the_budget(telling: Telling) -> None:
    for count in (1, 8):
        begun = await telling.told(*[event("x" * 2**20)] * count, tokens_max=BUDGET)
        for name in GRAMMARS:
            assert tokens_of(reminder(begun), name, telling.tokenizer) <= BUDGET
