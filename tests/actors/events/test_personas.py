"""Two personas over the same sources: what one is told moves nothing of the other's (EVT-3).

Fifty sources, of which both are told ten, over logs of some thousand events. Turns of either at
random, finished, given up or previewed, branches from earlier ones, events in between, and a room
that restarts: against an oracle that remembers, for each turn, how far it has seen each source.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from protocol.ids import SourceId
from protocol.messages.events import BegunTurn, SessionRow, SourceRow, TurnRow
from tests.events_rooms import House, merged, user

SOURCES = [f"source-{number:02}" for number in range(50)]
SCOPES = {"Timmy": SOURCES[:30], "Sally": SOURCES[20:]}
EVENTS = 60
STEPS = 80

Marks = dict[str, int]


@dataclass
class Persona:
    """A session and the oracle of it: `seen` by turn, `""` before the first; `newest` is the last
    that began."""

    session: str
    scope: list[str]
    seen: dict[str, Marks] = field(default_factory=lambda: {"": {}})
    newest: str = ""

    @property
    def marks(self) -> Marks:
        return self.seen[self.newest]


@dataclass
class Talk:
    """A house with the sources, and both personas, each new to everything in its scope."""

    random: Random
    house: House = field(default_factory=House)
    heads: Counter[str] = field(default_factory=Counter)
    names: dict[SourceId, str] = field(default_factory=dict)
    personas: list[Persona] = field(default_factory=list)

    async def start(self) -> Talk:
        await self.house.start()
        for name in SOURCES:
            row: SourceRow = await self.house.source(name)
            self.names[row.id] = name
            await self.emit(name, EVENTS)
        for persona, scope in SCOPES.items():
            opened = await self.house.open(persona=persona, scope=scope)
            self.personas.append(Persona(opened.id, scope))
        return self

    async def emit(self, name: str, count: int) -> None:
        """The next events of a source, each about its own number."""
        first = self.heads[name] + 1
        stories = [merged(str(number)) for number in range(first, first + count)]
        await self.house.emit(name, *stories)
        self.heads[name] += count

    async def something_happens(self) -> None:
        for name in self.random.sample(SOURCES, self.random.randint(1, 8)):
            await self.emit(name, self.random.randint(1, 3))

    def unseen(self, persona: Persona, parent: str) -> dict[str, set[int]]:
        """What a turn on `parent` is to be told, by source."""
        seen = persona.seen[parent]
        numbers = {
            name: set(range(seen.get(name, 0) + 1, self.heads[name] + 1)) for name in persona.scope
        }
        return {name: each for name, each in numbers.items() if each}

    async def turn(self, persona: Persona) -> None:
        """A turn on the newest or, at times, on an earlier one; finished or given up."""
        branches = persona.newest and self.random.random() < 0.2
        parent = self.random.choice(list(persona.seen)[1:]) if branches else persona.newest
        expected = self.unseen(persona, parent)
        begun: BegunTurn = await self.house.begin(
            persona.session, input=[user("and?")], parent=parent or None
        )
        persona.seen[begun.turn] = {name: self.heads[name] for name in persona.scope}
        persona.newest = begun.turn
        if self.random.random() < 0.8:
            await self.house.finish(begun)
        else:
            await self.house.abandon(begun)
        listed: TurnRow = (await self.house.turns(persona.session)).turns[-1]
        assert listed.id == begun.turn
        told("".join(listed.reminders), expected)

    async def preview(self, persona: Persona) -> None:
        shown = await self.house.preview(persona.session)
        told(shown.text, self.unseen(persona, persona.newest))

    async def check(self) -> None:
        """Each session's marks, and how many turns it has, are what the oracle says."""
        for persona in self.personas:
            row: SessionRow = (await self.house.turns(persona.session)).session
            marks = {self.names[mark.source]: mark.seq for mark in row.marks}
            assert {name: seq for name, seq in marks.items() if seq} == persona.marks
            assert (row.turns, row.head) == (len(persona.seen) - 1, persona.newest or None)


def told(text: str, expected: dict[str, set[int]]) -> None:
    """A reminder accounts for every event that was expected, and tells of no other."""
    whole, counted = Counter[str](), 0
    for line in text.splitlines()[1:]:
        if more := re.fullmatch(r"and (\d+) more events?", line):
            counted += int(more[1])
            continue
        found = re.fullmatch(r"([\w-]+) · \S+ \S+ · MergeSucceeded: (\d+) merged(.*)", line)
        assert found, line
        assert int(found[2]) in expected[found[1]]
        times = re.search(r", (\d+) times", found[3])
        counted += int(times[1]) - 1 if times else 0
        whole[f"{found[1]} {found[2]}"] += 1
    assert set(whole.values()) <= {1}, "each once"
    assert whole.total() + counted == sum(map(len, expected.values()))


@pytest.mark.req("EVT-3", "EVT-4")
@pytest.mark.parametrize("seed", range(2))
async def test_the_marks_of_two_personas_are_their_own(seed: int) -> None:
    talk = await Talk(Random(seed)).start()
    for _ in range(STEPS):
        before = {persona.session: dict(persona.marks) for persona in talk.personas}
        persona, other = talk.random.sample(talk.personas, 2)
        for act in talk.random.choices(
            [talk.something_happens, talk.house.crash, None], weights=[8, 1, 2]
        ):
            if act is not None:
                await act()
        await (talk.preview if talk.random.random() < 0.2 else talk.turn)(persona)
        assert other.marks == before[other.session]
        await talk.check()
    assert min(len(persona.seen) for persona in talk.personas) > STEPS // 4
    await talk.house.room.drain()


@pytest.mark.req("EVT-3")
async def test_turns_of_both_at_once_are_their_own() -> None:
    talk = await Talk(Random(9)).start()
    for _ in range(10):
        await asyncio.gather(*map(talk.turn, talk.personas))
        await talk.check()
        await talk.something_happens()
    await talk.house.room.drain()
