"""A room that dies at any call to its stores or to another room, and what is found afterwards.

Every step of a turn is tried with a death at its first call, its second, and so on, before the call
does anything and after it did everything; and seeds play long talks with deaths in them. What was
acknowledged is there, and every event is told once (`tests.session_play`). The controls are stores
and a book that break what the room relies on: with each of them the checker has to cry out.

`HUGINN_CRASH_SEEDS` plays so many seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from actors.events.book import Book, Live
from actors.events.turns import Turn
from protocol.errors import HuginnError
from protocol.ids import SourceId
from store.events import LogRange, StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from store.tables import Change, KeyedTable
from tests.events_rooms import House, user
from tests.session_play import Play, Talk, edited

SEEDS = int(os.environ.get("HUGINN_CRASH_SEEDS", "25"))
CALLS_MAX = 40


class Death(Exception):
    """The process is gone: nothing that it does from now on happens."""


class Bomb:
    """Goes off at the `at`-th call from when it is set; `after` the call has done its work."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False
        self.dead = False
        self.instead: Callable[[], None] | None = None

    def set(self, at: int, *, after: bool, instead: Callable[[], None] | None = None) -> None:
        self.left, self.after, self.instead, self.dead = at, after, instead, False

    def clear(self) -> bool:
        """Whether it went off."""
        gone = self.left == 0
        self.left, self.dead, self.instead = None, False, None
        return gone

    def call(self, work: Callable[[], Any]) -> Any:
        if self.dead:
            raise Death
        if self.left is None or self.left == 0:
            return work()
        self.left -= 1
        if self.left:
            return work()
        if self.instead is not None:
            self.instead()
            return work()
        self.dead = True
        if self.after:
            work()
        raise Death


class MinedTables:
    """Tables whose every call may be the last."""

    def __init__(self, tables: MemoryTables, bomb: Bomb) -> None:
        self._tables = tables
        self._bomb = bomb

    def keyed(self, name: str) -> KeyedTable:
        return self._tables.keyed(name)

    def apply(self, changes: Sequence[Change]) -> list[int]:
        return self._bomb.call(lambda: self._tables.apply(changes))  # type: ignore[no-any-return]

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        return self._bomb.call(  # type: ignore[no-any-return]
            lambda: self._tables.apply_soon(changes)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


class MinedLogs:
    """Event logs whose every call may be the last."""

    def __init__(self, logs: MemoryEventLogs, bomb: Bomb) -> None:
        self._logs = logs
        self._bomb = bomb

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        return self._bomb.call(  # type: ignore[no-any-return]
            lambda: self._logs.append_soon(entries, changes)
        )

    def range(self, source: SourceId) -> LogRange:
        return self._bomb.call(lambda: self._logs.range(source))  # type: ignore[no-any-return]

    def read(self, *args: Any, **kwargs: Any) -> list[StoredEvent]:
        return self._bomb.call(  # type: ignore[no-any-return]
            lambda: self._logs.read(*args, **kwargs)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs, name)


class Stage:
    """A play on mined ground."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        self.bomb = Bomb()
        self.stored = tables or MemoryTables()
        logs = MinedLogs(MemoryEventLogs(self.stored), self.bomb)
        house = House(tables=MinedTables(self.stored, self.bomb), logs=logs)  # type: ignore[arg-type]
        self.play = Play(house)

    async def start(self) -> Stage:
        await self.play.house.start()
        call = self.play.house.rooms.post.call

        async def mined(room: str, message: bytes) -> bytes:
            # A room that is asked by the events room; what comes to it is not its own call.
            if room != "ropes":
                return await call(room, message)
            if self.bomb.dead:
                raise Death
            if self.bomb.left == 1 and self.bomb.instead is None and self.bomb.after:
                reply = await call(room, message)
                self.bomb.call(lambda: None)
                return reply
            self.bomb.call(lambda: None)
            return await call(room, message)

        self.play.house.rooms.post.call = mined  # type: ignore[method-assign]
        await self.play.add_source("huskies")
        await self.play.add_source("sled")
        await self.play.open(None)
        await self.play.open(["huskies"])
        return self

    async def survive(self, step: Callable[[], Awaitable[object]]) -> bool:
        """Take `step`; if the room died in it, another one is there. Whether it died."""
        try:
            await step()
        except (HuginnError, Death):
            died = self.bomb.clear()
            assert died, "refused without a death"
        else:
            died = self.bomb.clear()
        if died:
            await self.play.crash()
        return died

    async def end(self) -> None:
        self.bomb.clear()
        await self.play.crash()
        self.play.expire()
        for talk in self.play.talks:
            await self.play.begin(talk, "once more")
        await self.play.house.room.drain()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rooms that die say so at length."""
    caplog.set_level("CRITICAL")


# -- each call of each step --------------------------------------------------------------------


async def _appended(stage: Stage) -> Callable[[], Awaitable[object]]:
    return lambda: stage.play.emit("huskies", 3)


async def _begun(stage: Stage) -> Callable[[], Awaitable[object]]:
    await stage.play.emit("huskies", 2)
    return lambda: stage.play.begin(stage.play.talks[0], "ok")


async def _begun_again(stage: Stage) -> Callable[[], Awaitable[object]]:
    """On a turn that crashed, with a reminder to carry, from a room that remembers nothing."""
    await _answered(stage)
    await stage.play.emit("sled", 2)
    await stage.play.begin(stage.play.talks[0], "ok")
    await stage.play.emit("huskies", 1)
    stage.play.expire()
    await stage.play.crash()
    return lambda: stage.play.begin(stage.play.talks[0], "ok")


async def _begun_at_length(stage: Stage) -> Callable[[], Awaitable[object]]:
    """With so much that is new that it is stored before the turn is."""
    await stage.play.emit("huskies", 2)
    return lambda: stage.play.begin(stage.play.talks[0], "so much " * 40_000)


async def _resent(stage: Stage) -> Callable[[], Awaitable[object]]:
    await _answered(stage)
    await stage.play.emit("sled", 2)
    talk = stage.play.talks[0]
    return lambda: stage.play.resend(talk, [user("ok"), *talk.client, user("go on")])


async def _finished(stage: Stage) -> Callable[[], Awaitable[object]]:
    await stage.play.emit("huskies", 2)
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None
    return lambda: stage.play.finish(talk, told, "Well.")


async def _answered(stage: Stage) -> Callable[[], Awaitable[object]]:
    await (await _finished(stage))()
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "and then?")
    assert told is not None
    await stage.play.finish(talk, told, "Then.")
    return lambda: stage.play.emit("sled", 1)


async def _abandoned(stage: Stage) -> Callable[[], Awaitable[object]]:
    await stage.play.emit("huskies", 2)
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None
    return lambda: stage.play.abandon(talk, told)


async def _renewed(stage: Stage) -> Callable[[], Awaitable[object]]:
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None
    return lambda: stage.play.renew(talk, told)


STEPS = [
    _appended,
    _begun,
    _begun_again,
    _begun_at_length,
    _resent,
    _finished,
    _abandoned,
    _renewed,
]


@pytest.mark.req("EVT-5", "EVT-2")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("prepare", STEPS)
async def test_a_death_at_every_call_of_a_step(
    prepare: Callable[[Stage], Awaitable[Callable[[], Awaitable[object]]]], after: bool
) -> None:
    for at in range(1, CALLS_MAX):
        stage = await Stage().start()
        step = await prepare(stage)
        stage.bomb.set(at, after=after)
        died = await stage.survive(step)
        await stage.end()
        if not died:
            assert at > 1, "the step asks nothing of anybody"
            return
    raise AssertionError(f"a step of {CALLS_MAX} calls")


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize("prepare", STEPS)
async def test_a_client_that_goes_away_at_every_call_of_a_step(
    prepare: Callable[[Stage], Awaitable[Callable[[], Awaitable[object]]]],
) -> None:
    for at in range(1, CALLS_MAX):
        stage = await Stage().start()
        step = await prepare(stage)
        task = asyncio.ensure_future(step())
        stage.bomb.set(at, after=False, instead=task.cancel)
        await asyncio.wait({task})
        gone = task.cancelled()
        assert gone or task.exception() is None
        stage.bomb.clear()
        await stage.play.house.room.settled()
        await stage.play.adopt()
        await stage.end()
        if not gone:
            return
    raise AssertionError(f"a step of {CALLS_MAX} calls")


# -- seeds -------------------------------------------------------------------------------------


async def _one_step(stage: Stage, draw: random.Random) -> None:
    play = stage.play
    talk: Talk = draw.choice(play.talks)
    open_turns = [told for told in talk.turns if told.state != "finished"]
    text = draw.choice(("ok", "go on", "what's going on?"))
    match draw.randrange(9):
        case 0 | 1:
            await play.emit(draw.choice(("huskies", "sled")), draw.randint(1, 3))
        case 2:
            await play.begin(talk, text)
        case 3 if talk.turns:
            await play.begin(talk, text, draw.randrange(len(talk.turns)))
        case 4:
            history = edited(talk.client, draw.randrange(6), draw.randrange(9), text)
            await play.resend(talk, history)
        case 5 | 6 if open_turns:
            await play.finish(talk, draw.choice(open_turns), text)
        case 7 if open_turns:
            await play.abandon(talk, draw.choice(open_turns))
        case 8:
            play.expire()


async def _played(seed: int, stage: Stage, steps: int = 40) -> int:
    """Plays one seed; how often the room died."""
    draw = random.Random(seed)
    await stage.start()
    deaths = 0
    for _ in range(steps):
        if draw.random() < 0.3:
            stage.bomb.set(draw.randint(1, 12), after=draw.random() < 0.5)
        deaths += await stage.survive(lambda: _one_step(stage, draw))
        stage.bomb.clear()
        if draw.random() < 0.05:
            name = draw.choice(("huskies", "sled"))
            await stage.play.trim(name, draw.randint(0, 4))
    await stage.end()
    return deaths


@pytest.mark.req("EVT-5")
async def test_seeds() -> None:
    deaths = [await _played(seed, Stage()) for seed in range(SEEDS)]
    assert sum(deaths) > SEEDS, "the bombs did not go off"


# -- controls: what must be found ---------------------------------------------------------------


class LyingTables(MemoryTables):
    """Says that the last change is durable, and makes it with the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Change] = []

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        early, self.late = self.late, list(changes)
        super().apply_soon(early)
        done: Future[list[int]] = Future()
        done.set_result([1] * len(changes))
        return done


class MarksApart(Book):
    """Moves the marks first, and then tells."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        bare = [msgspec.structs.replace(turn, reminder=None, placed=[]) for turn in turns]
        await super().write(live, bare, (), **fields)
        await super().write(live, turns, changes, **fields)


class Forgetful(Book):
    """Acknowledges an answer before it is written."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        if turns[-1].state == "finished":
            live.put(turns[-1])
            return
        await super().write(live, turns, changes, **fields)


async def _with_book(kind: type[Book], prepare: Any, at: int) -> None:
    stage = await Stage().start()
    stage.play.house.room._book.__class__ = kind
    step = await prepare(stage)
    stage.bomb.set(at, after=True)
    await stage.survive(step)
    await stage.end()


async def _cries(tries: Iterable[Awaitable[object]]) -> bool:
    """Whether the checker finds something in one of `tries`."""
    for each in tries:
        try:
            await each
        except AssertionError:
            return True
    return False


async def test_marks_that_move_apart_from_their_turn_are_found() -> None:
    assert await _cries(_with_book(MarksApart, _begun, at) for at in range(1, CALLS_MAX))


async def test_an_answer_that_is_acknowledged_too_early_is_found() -> None:
    with pytest.raises(AssertionError, match="an answer was lost"):
        await _with_book(Forgetful, _answered, CALLS_MAX)


async def test_a_store_that_lies_is_found() -> None:
    assert await _cries(_played(seed, Stage(LyingTables())) for seed in range(20))
