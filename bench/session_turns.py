"""Turns of two personas through the events room, over the logs of `bench.sessions`.

Both sessions are opened in a real room over the logs on disk: `Timmy` for the first 30 of 50
sources, `Sally` for the last 30, so that ten are for both. In each round each of them has a new
session, whose first turn is told of everything, and then further turns, one after the other's.
Before each pair of turns 30 events are appended, of which each is to be told 20: ten of a source of
its own, ten of one that both have. Messages are signed, sealed and admitted, and answers are kept.

After every turn the marks of both sessions are compared with what they have to be: those of who
had it are at the ends of the logs in its scope, and those of the other have not moved. What is
reported is `begin_turn`, as a transport waits for it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actors.events.registry import KnownSource, SourceRegistry
from actors.events.retention import Retention
from actors.events.sessions import SessionLimits
from bench.report import Cell, fitted_exponent
from protocol.ids import SourceId
from protocol.messages.events import BegunTurn
from protocol.signing import SEED_BYTES, Signer
from protocol.tokenizer import Tokenizer
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_tables import SqliteTables
from tests.events_rooms import NAMESPACE, DerivedKeys, House, merged, user

SCOPES: Final = {"Timmy": slice(0, 30), "Sally": slice(20, 50)}
# Where something happens between turns: in Timmy's alone, in one of both, in Sally's alone.
NEWS_IN: Final = (0, 25, 49)
NEWS_EACH: Final = 10
COLUMNS: Final = ["events", "persona", "turns", "first ms", "p50 ms", "p99 ms", "new"]

Row = dict[str, Cell]
Marks = dict[SourceId, int]


class NumberedKeys(DerivedKeys):
    """The keys of `bench.events.Writer`: a source's is its number."""

    def signer(self, name: str) -> Signer:
        return Signer(int(name.removeprefix("source-")).to_bytes(SEED_BYTES, "big"))


@dataclass
class _Figures:
    """Nanoseconds of `begin_turn`: first turns of sessions, and later ones. `new`: events that all
    later ones were told whole."""

    first: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    new: int = 0


class _Stand:
    """A room over the logs of one size, and what the marks of its sessions have to be."""

    def __init__(self, path: Path, sources: Sequence[SourceId], tokenizer: Tokenizer) -> None:
        database = Database(path)
        self.logs = SqliteEventLogs(database)
        self.tables = SqliteTables(database)
        self.sources = sources
        self.heads = {source: self.logs.range(source).head for source in sources}
        self.house = House(
            tables=self.tables,
            logs=self.logs,
            limits=SessionLimits(),
            options={"retention": Retention(events_max=None, age_ns_max=None, unseen_max=None)},
            tokenizer=tokenizer,
            keys=NumberedKeys(),
        )
        self.marks: dict[str, Marks] = {}

    async def start(self) -> None:
        registry = SourceRegistry(self.tables, self.logs)
        for number, source in enumerate(self.sources, 1):
            name = f"source-{number}"
            registry.keep(
                KnownSource(
                    namespace=NAMESPACE,
                    name=name,
                    id=source,
                    public_key=self.house.keys.signer(name).public,
                    key_name=name,
                )
            )
        await self.house.start()

    async def open(self, persona: str) -> str:
        """A session that has seen nothing."""
        scope = [f"source-{number + 1}" for number in range(len(self.sources))[SCOPES[persona]]]
        session = (await self.house.open(persona=persona, scope=scope)).id
        self.marks[session] = {}
        return session

    async def news(self) -> None:
        """Something happens, of which each persona is to be told two thirds."""
        for at in NEWS_IN:
            first = self.heads[self.sources[at]]
            stories = [merged(f"{at}-{first + each}") for each in range(NEWS_EACH)]
            await self.house.emit(f"source-{at + 1}", *stories)
            self.heads[self.sources[at]] += NEWS_EACH

    async def turn(self, persona: str, session: str) -> tuple[int, BegunTurn]:
        """One whole turn, and the nanoseconds of its beginning."""
        # What was said a while ago need not be remembered as said.
        self.house.passes(1)
        scope = self.sources[SCOPES[persona]]
        unseen = sum(self.heads[each] - self.marks[session].get(each, 0) for each in scope)
        before = (await self.house.turns(session)).session
        began_ns = time.perf_counter_ns()
        begun = await self.house.begin(session, input=[user("and?")])
        took_ns = time.perf_counter_ns() - began_ns
        await self.house.finish(begun)
        self.marks[session] = {source: self.heads[source] for source in scope}
        after = (await self.house.turns(session)).session
        told = after.injected - before.injected + after.dropped - before.dropped
        assert told == unseen, f"{persona} was told of {told} events, of {unseen} it has not seen"
        return took_ns, begun

    async def check(self, sessions: Iterable[str]) -> None:
        """The marks of `sessions` are what their own turns made them."""
        for session in sessions:
            kept = (await self.house.turns(session)).session.marks
            marks = {each.source: each.seq for each in kept if each.seq}
            assert marks == self.marks[session], f"the marks of {session} are another's"


def turn_rows(
    written: Mapping[int, tuple[Path, list[SourceId]]],
    rounds: int,
    turns: int,
    tokenizer: Tokenizer,
) -> list[Row]:
    """What beginning a turn costs over each of the `written` logs, by their sizes: `rounds` of new
    sessions with `turns` each after the first one. The sizes take turns."""
    return asyncio.run(_turn_rows(written, rounds, turns, tokenizer))


def growth_rows(rows: Sequence[Row]) -> list[Row]:
    """The fitted exponents of each persona's turns (time ~ events^p)."""
    found: list[Row] = []
    for persona in SCOPES:
        mine = [row for row in rows if row["persona"] == persona]
        sizes = [float(str(row["events"])) for row in mine]
        fitted = {
            column.removesuffix(" ms"): fitted_exponent(
                sizes, [float(str(row[column])) for row in mine]
            )
            for column in ("first ms", "p50 ms", "p99 ms")
        }
        found.append({"persona": persona, **fitted})
    return found


async def _turn_rows(
    written: Mapping[int, tuple[Path, list[SourceId]]],
    rounds: int,
    turns: int,
    tokenizer: Tokenizer,
) -> list[Row]:
    figures = {(size, persona): _Figures() for size in written for persona in SCOPES}
    stands = {size: _Stand(path, each, tokenizer) for size, (path, each) in written.items()}
    for stand in stands.values():
        await stand.start()
    for _ in range(rounds):
        for size, stand in stands.items():
            await _round(stand, {name: figures[size, name] for name in SCOPES}, turns)
    for stand in stands.values():
        await stand.house.room.drain()
    return [_row(size, persona, each) for (size, persona), each in figures.items()]


async def _round(stand: _Stand, figures: Mapping[str, _Figures], turns: int) -> None:
    sessions = {persona: await stand.open(persona) for persona in SCOPES}
    for persona, session in sessions.items():
        took_ns, _ = await stand.turn(persona, session)
        await stand.check(sessions.values())
        figures[persona].first.append(took_ns)
    for _ in range(turns):
        await stand.news()
        for persona, session in sessions.items():
            took_ns, begun = await stand.turn(persona, session)
            await stand.check(sessions.values())
            mine = figures[persona]
            mine.later.append(took_ns)
            mine.new += begun.injected
    # And those of all rounds before.
    await stand.check(stand.marks)


def _row(size: int, persona: str, figures: _Figures) -> Row:
    later = sorted(figures.later)
    return {
        "events": size,
        "persona": persona,
        "turns": len(later),
        "first ms": statistics.median(figures.first) / 1e6,
        "p50 ms": later[len(later) // 2] / 1e6,
        "p99 ms": later[len(later) * 99 // 100] / 1e6,
        "new": figures.new / len(later),
    }
