"""A house that dies at any call of a turn, and what is found afterwards.

Every step of a turn in the events room is tried with a death at its first call, its second, and so
on, before the call does anything and after it did everything (`test_settling` does the same with
what the worker has to do with it); and seeds play long talks of all steps with deaths in them. What
was acknowledged is there, and every event is told once. The controls are stores and a book that
break what the room relies on: with each of them the checker has to cry out.

`HUGINN_CRASH_SEEDS` plays so many seeds, from `HUGINN_CRASH_SEED` on.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from actors.events.book import Book
from store.memory_tables import MemoryTables
from store.tables import Change
from tests.crash.faulty_books import Forgetful, MarksApart
from tests.crash.stage import (
    CALLS_MAX,
    Prepare,
    Stage,
    Step,
    clients_gone_at_every_call,
    deaths_at_every_call,
    staged,
)
from tests.crash.totals import DEATHS, EVENTS, SEEDS_PLAYED, TOTALS
from tests.events_rooms import user
from tests.session_play import Talk, edited

SEEDS = int(os.environ.get("HUGINN_CRASH_SEEDS", "25"))
FIRST = int(os.environ.get("HUGINN_CRASH_SEED", "0"))
STEPS_MAX = 40
# What the worker has to do takes about so many calls; what the events room does alone, twelve.
KIND_TO_CALLS = {"answer": 30, "settle": 30}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rooms that die say so at length."""
    caplog.set_level("CRITICAL")


# -- each call of each step --------------------------------------------------------------------


async def _appended(stage: Stage) -> Step:
    return lambda: stage.play.emit("huskies", 3)


async def _begun(stage: Stage) -> Step:
    await stage.play.emit("huskies", 2)
    return lambda: stage.play.begin(stage.play.talks[0], "ok")


async def _begun_again(stage: Stage) -> Step:
    """On a turn that crashed, with a reminder to carry, from a room that remembers nothing."""
    await _answered(stage)
    await stage.play.emit("sled", 2)
    await stage.play.begin(stage.play.talks[0], "ok")
    await stage.play.emit("huskies", 1)
    stage.play.expire()
    await stage.play.crash()
    return lambda: stage.play.begin(stage.play.talks[0], "ok")


async def _begun_at_length(stage: Stage) -> Step:
    """With so much that is new that it is stored before the turn is."""
    await stage.play.emit("huskies", 2)
    return lambda: stage.play.begin(stage.play.talks[0], "so much " * 40_000)


async def _resent(stage: Stage) -> Step:
    await _answered(stage)
    await stage.play.emit("sled", 2)
    talk = stage.play.talks[0]
    return lambda: stage.play.resend(talk, [user("ok"), *talk.client, user("go on")])


async def _finished(stage: Stage) -> Step:
    await stage.play.emit("huskies", 2)
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None
    return lambda: stage.play.finish(talk, told, "Well.")


async def _answered(stage: Stage) -> Step:
    await (await _finished(stage))()
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "and then?")
    assert told is not None
    await stage.play.finish(talk, told, "Then.")
    return lambda: stage.play.emit("sled", 1)


async def _abandoned(stage: Stage) -> Step:
    await stage.play.emit("huskies", 2)
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None
    return lambda: stage.play.abandon(talk, told)


async def _renewed(stage: Stage) -> Step:
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
async def test_a_death_at_every_call_of_a_step(prepare: Prepare, after: bool) -> None:
    await deaths_at_every_call(prepare, after=after, works=False)


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize("prepare", STEPS)
async def test_a_client_that_goes_away_at_every_call_of_a_step(prepare: Prepare) -> None:
    await clients_gone_at_every_call(prepare, works=False)


# -- seeds -------------------------------------------------------------------------------------


def _drawn(stage: Stage, draw: random.Random) -> tuple[str, Step]:
    """A step, and of which kind it is."""
    play = stage.play
    talk: Talk = draw.choice(play.talks)
    newest = talk.turns[-1] if talk.turns else None
    open_turns = [told for told in talk.turns if told.state != "finished"]
    told = draw.choice(open_turns) if open_turns else None
    text = draw.choice(("ok", "go on", "what's going on?"))
    if newest is not None and stage.can_settle(newest) and draw.random() < 0.5:
        late = draw.random() < 0.3
        return "settle", lambda: stage.settle(newest, late=late)
    match draw.randrange(11):
        case 0 | 1:
            name, count = draw.choice(("huskies", "sled")), draw.randint(1, 3)
            return "append", lambda: play.emit(name, count)
        case 2:
            return "begin", lambda: play.begin(talk, text)
        case 3 if talk.turns:
            parent = draw.randrange(len(talk.turns))
            return "begin", lambda: play.begin(talk, text, parent)
        case 4:
            history = edited(talk.client, draw.randrange(6), draw.randrange(9), text)
            return "begin", lambda: play.resend(talk, history)
        case 5 | 6 if told is not None:
            return "finish", lambda: play.finish(talk, told, text)
        case 7 if told is not None:
            return "abandon", lambda: play.abandon(talk, told)
        case 8:
            return "wait", lambda: _expired(stage)
        case 9 | 10 if newest is not None and stage.can_answer(newest):
            return "answer", lambda: stage.answer(talk, newest)
    return "rest", stage.house.quiet


async def _expired(stage: Stage) -> None:
    stage.play.expire()


@dataclass
class Played:
    """What one seed came to: how often the house died in which kind of step, how many events were
    kept, and how many tokens the last life had from the pages of the one before."""

    steps: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    events: int = 0
    restored: int = 0

    def __str__(self) -> str:
        return f"{self.steps} steps, {self.deaths.total()} deaths in {dict(+self.deaths)}"


async def _played(seed: int, played: Played, tables: MemoryTables | None = None) -> None:
    """Plays one seed, and counts."""
    draw = random.Random(seed)
    # Every other house has so little room that pages are evicted all the time.
    async with staged(tables, budget_bytes=draw.choice((2**30, 60_000))) as stage:
        for _ in range(STEPS_MAX):
            kind, step = _drawn(stage, draw)
            if draw.random() < (0.6 if kind in KIND_TO_CALLS else 0.3):
                calls = KIND_TO_CALLS.get(kind, 12)
                stage.bomb.set(draw.randint(1, calls), after=draw.random() < 0.5)
            played.steps += 1
            played.deaths[kind] += await stage.survive(step)
            stage.bomb.clear()
            if draw.random() < 0.05:
                name = draw.choice(("huskies", "sled"))
                await stage.play.trim(name, draw.randint(0, 4))
        await stage.end()
        played.restored += stage.house.restored_tokens
        played.events += sum(map(len, stage.play.sources.values()))


async def _replayable(seed: int, played: Played, tables: MemoryTables | None = None) -> None:
    """Plays a seed; what fails in it says how to play it again."""
    try:
        await _played(seed, played, tables)
    except Exception as error:
        again = f"HUGINN_CRASH_SEED={seed} HUGINN_CRASH_SEEDS=1"
        raise AssertionError(f"seed {seed}, after {played}: {error} ({again})") from error


@pytest.mark.req("EVT-5")
async def test_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    total = Played()
    for seed in range(FIRST, FIRST + SEEDS):
        played = Played()
        await _replayable(seed, played)
        total.steps += played.steps
        total.deaths += played.deaths
        total.events += played.events
        total.restored += played.restored
    with capsys.disabled():
        sys.stdout.write(f"\nseeds {FIRST} to {FIRST + SEEDS - 1}: {total}; 0 lost, 0 told twice\n")
    assert total.restored > 0, "no page of a life before was of use"
    assert total.deaths.total() > SEEDS, "the bombs did not go off"
    for kind in ("append", "begin", "answer", "finish", "settle"):
        assert total.deaths[kind] > 0, f"nobody died in {kind}: play more seeds"
    TOTALS.update({SEEDS_PLAYED: SEEDS, DEATHS: total.deaths.total(), EVENTS: total.events})


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


async def _with_book(kind: type[Book], prepare: Prepare, at: int) -> None:
    async with staged(works=False) as stage:
        stage.house.room._book.__class__ = kind
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


async def _played_on(kind: type[MemoryTables]) -> None:
    for seed in range(20):
        await _replayable(seed, Played(), kind())


async def test_a_store_that_lies_is_found_and_its_seed_is_named() -> None:
    with pytest.raises(AssertionError, match=r"seed (\d+), after \d+ steps, .*_SEED=\1 "):
        await _played_on(LyingTables)
