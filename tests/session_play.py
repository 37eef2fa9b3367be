"""A play of sources, sessions and turns, and the checker that watches it (I-ONCE).

The play emits numbered events and takes turns, as seeds or Hypothesis decide, and knows what each
turn must have been told: every event of its scope above its parent's marks, whole, exactly once, or
a gap that names what was trimmed before. After a crash it adopts what became of the step that was
under way, and nothing else: all that was acknowledged has to be there, unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from protocol.blocks import Role
from protocol.errors import Conflict
from protocol.events import read_entry
from protocol.messages import events as messages
from protocol.messages.ropes import NewBlock
from tests.events_rooms import NAMESPACE, House, merged, model, reminders, said, user

EVENT = re.compile(r"MergeSucceeded: (\w+) merged")
GAP = re.compile(r"^([\w/]+) · EventStreamGap: \d+ events not kept, (\d+) to (\d+)$", re.MULTILINE)


@dataclass
class Told:
    """One turn: what its lineage has seen with it, by source, and the reminder that was its own."""

    id: str
    parent: int | None
    seen: dict[str, int]
    reminder: str | None
    state: str = "open"
    given_up: bool = False
    # Held at least until then, as far as was heard.
    until_ns: int = 0
    history: list[NewBlock] | None = None
    blocks: list[NewBlock] | None = None
    answered: list[NewBlock] | None = None


@dataclass
class Talk:
    """One session. `client` is the history of a client that keeps its own."""

    id: str
    scope: list[str] | None
    turns: list[Told] = field(default_factory=list)
    client: list[NewBlock] = field(default_factory=list)

    def lineage(self, index: int | None) -> list[Told]:
        found: list[Told] = []
        while index is not None:
            found.append(self.turns[index])
            index = self.turns[index].parent
        return found[::-1]


class Play:
    """Every step checks what it gets. `house` is replaced by nothing: it rebuilds its own room."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.sources: dict[str, list[str]] = {}
        self.kept_from: dict[str, int] = {}
        self.talks: list[Talk] = []
        self._named = 0

    # -- steps -------------------------------------------------------------------------------

    async def add_source(self, name: str) -> None:
        await self.house.source(name)
        self.sources[name] = []
        self.kept_from[name] = 1

    async def emit(self, name: str, count: int) -> None:
        subjects = [f"e{self._named + index}" for index in range(count)]
        self._named += count
        await self.house.emit(name, *(merged(subject) for subject in subjects))
        self.sources[name] += subjects

    async def open(self, scope: list[str] | None) -> None:
        row = await self.house.open(scope=scope)
        self.talks.append(Talk(row.id, scope))

    async def trim(self, name: str, keep: int) -> None:
        """Retention, however much was seen."""
        listed = await self.house.ask(
            "sources", messages.ListSources(namespace=NAMESPACE), messages.Sources
        )
        row = next(row for row in listed.sources if row.name == name)
        through = len(self.sources[name]) - keep
        if through >= 1:
            assert self.house.logs is not None
            self.house.logs.trim(row.id, through)
            self.kept_from[name] = max(self.kept_from[name], through + 1)

    async def begin(self, talk: Talk, text: str, parent: int | None = None) -> Told | None:
        """A turn that continues what is kept; None if another one is open there."""
        at = parent if parent is not None else (len(talk.turns) - 1 if talk.turns else None)
        named = talk.turns[parent].id if parent is not None else None
        try:
            begun = await self.house.begin(talk.id, input=[user(text)], parent=named)
        except Conflict as error:
            _expected(error, "turn_in_progress")
            return None
        told = self._began(talk, begun, at)
        finished = [turn for turn in talk.lineage(at) if turn.state == "finished"]
        # Of an answer that was kept and not heard of, the blocks are not known here.
        before = (finished[-1].answered if finished else None) or []
        assert begun.blocks[: len(before)] == before
        lineage = [turn.reminder for turn in talk.lineage(len(talk.turns) - 1) if turn.reminder]
        # In what order, a client that resent an edited history had a say in.
        assert Counter(reminders(begun.blocks)) == Counter(lineage)
        return told

    async def resend(self, talk: Talk, history: list[NewBlock]) -> Told | None:
        """A turn of a client that keeps its history, which goes on from the newest."""
        at = len(talk.turns) - 1 if talk.turns else None
        try:
            begun = await self.house.begin(talk.id, history=history)
        except Conflict as error:
            _expected(error, "turn_in_progress")
            return None
        talk.client = history
        told = self._began(talk, begun, at)
        told.history = history
        assert [block for block in begun.blocks if block in history] == history
        parent = talk.turns[at] if at is not None else None
        if parent is not None and parent.history and parent.blocks is not None:
            appended = history[: len(parent.history)] == parent.history
            assert not appended or begun.blocks[: len(parent.blocks)] == parent.blocks
        return told

    async def finish(self, talk: Talk, told: Told, answer: str) -> bool:
        """Whether the answer came in time."""
        begun = self._handle(talk, told)
        continued = any(
            turn.parent is not None and talk.turns[turn.parent] is told for turn in talk.turns
        )
        try:
            finished = await self.house.finish(begun, answer)
        except Conflict as error:
            _expected(error, "turn_unfinished")
            if not continued and not told.given_up:
                raise
            return False
        assert not continued
        assert told.state != "unfinished"
        told.state = "finished"
        told.answered = finished.blocks
        if told.blocks is not None:
            assert finished.blocks[:-1] == told.blocks
        if told.history is not None:
            talk.client = [*told.history, model(answer)]
        return True

    async def abandon(self, talk: Talk, told: Told) -> None:
        # Before it is known whether that was heard.
        told.given_up = told.state != "finished"
        await self.house.abandon(self._handle(talk, told))
        if told.state == "open":
            told.state = "unfinished"

    async def renew(self, talk: Talk, told: Told) -> None:
        if told.state == "open":
            renewed = await self.house.renew(self._handle(talk, told))
            told.until_ns = renewed.lease_ns

    def expire(self) -> None:
        """Every lease runs out."""
        self.house.passes(31)
        for talk in self.talks:
            for told in talk.turns:
                told.state = "expired" if told.state == "open" else told.state

    async def crash(self) -> None:
        await self.house.crash()
        await self.adopt()

    # -- what has to hold ----------------------------------------------------------------------

    def _began(self, talk: Talk, begun: messages.BegunTurn, parent: int | None) -> Told:
        known = [turn.reminder for turn in talk.lineage(parent) if turn.reminder]
        new = list((Counter(reminders(begun.blocks)) - Counter(known)).elements())
        assert Counter(known) <= Counter(reminders(begun.blocks)), "a reminder was lost"
        assert len(new) <= 1
        told = self._told(talk, begun.turn, parent, new[0] if new else None)
        events = EVENT.findall(new[0]) if new else []
        assert begun.injected == len(events)
        told.blocks = begun.blocks
        told.until_ns = begun.lease_ns
        subjects = EVENT.findall("\n".join(reminders(begun.blocks)))
        assert len(subjects) == len(set(subjects)), "an event was told twice"
        return told

    def _told(self, talk: Talk, id: str, parent: int | None, reminder: str | None) -> Told:
        """The turn, after its reminder was compared with what it had to be."""
        if parent is not None and talk.turns[parent].state in ("open", "expired"):
            now_ns = self.house.rooms.clock.wall_ns()
            assert talk.turns[parent].until_ns <= now_ns, "a turn that is held was continued"
            talk.turns[parent].state = "unfinished"
        before = talk.turns[parent].seen if parent is not None else {}
        seen = dict(before)
        events: list[str] = []
        gaps: list[tuple[str, int, int]] = []
        for name in sorted(self.sources):
            if talk.scope is not None and name not in talk.scope:
                continue
            start, head = before.get(name, 0) + 1, len(self.sources[name])
            first = min(max(start, self.kept_from[name]), head + 1)
            if first > start:
                gaps.append((name, start, first - 1))
            events += self.sources[name][first - 1 :]
            seen[name] = max(before.get(name, 0), head)
        text = reminder or ""
        assert EVENT.findall(text) == events
        assert [(name, int(a), int(b)) for name, a, b in GAP.findall(text)] == gaps
        assert (reminder is None) == (not events and not gaps)
        told = Told(id, parent, seen, reminder)
        talk.turns.append(told)
        return told

    async def adopt(self) -> None:
        """What is stored now: all that was acknowledged, and at most the step that was not."""
        await self._adopt_events()
        for talk in self.talks:
            listed = await self.house.turns(talk.id)
            assert [row.id for row in listed.turns[: len(talk.turns)]] == [
                told.id for told in talk.turns
            ], "a turn was lost"
            ids = [row.id for row in listed.turns]
            for row in listed.turns[len(talk.turns) :]:
                parent = None if row.parent is None else ids.index(row.parent)
                self._told(talk, row.id, parent, row.reminders[0] if row.reminders else None)
            for told, row in zip(talk.turns, listed.turns, strict=True):
                assert row.reminders == ([told.reminder] if told.reminder else [])
                if told.state == "finished":
                    assert row.state == "finished", "an answer was lost"
                told.state = "expired" if self._expired(told, row) else row.state
            seen = talk.turns[-1].seen if talk.turns else {}
            marks = {mark.source: mark.seq for mark in listed.session.marks}
            assert sorted(marks.values()) == sorted(v for v in seen.values() if v or marks)

    def _expired(self, told: Told, row: messages.TurnRow) -> bool:
        return told.state == "expired" and row.state == "unfinished"

    async def _adopt_events(self) -> None:
        for name, subjects in self.sources.items():
            ask = messages.ReadEvents(
                namespace=NAMESPACE, source=name, after=len(subjects), limit=messages.EVENTS_MAX
            )
            page = await self.house.ask("read", ask, messages.EventPage)
            subjects += [read_entry(entry)[1].subject for entry in page.entries]
            assert page.head == len(subjects), "an event was lost"

    def _handle(self, talk: Talk, told: Told) -> messages.BegunTurn:
        return messages.BegunTurn(
            session=talk.id,
            turn=told.id,
            blocks=[],
            lease_ns=0,
            reminders=0,
            injected=0,
            gaps=[],
        )


def _expected(error: Conflict, *reasons: str) -> None:
    if error.details.get("reason") not in reasons:
        raise error


def edited(history: list[NewBlock], way: int, at: int, text: str) -> list[NewBlock]:
    """`history` as a client may send it next: appended to, edited, cut, shifted or doubled."""
    if not history:
        return [user(text)]
    at %= len(history)
    match way % 6:
        case 0 | 1:
            return [*history, user(text)]
        case 2:
            return [*history[:at], user(text)]
        case 3:
            return [*history[:at], user(text), *history[at + 1 :]]
        case 4:
            return [said(Role.SYSTEM, text), *history]
        case _:
            return [*history, history[at], user(text)]
