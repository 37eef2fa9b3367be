"""A play of turns in a house that dies, and the two ways to go through one of its steps.

`deaths_at_every_call` lets the house die at the step's first call, its second, and so on, each time
in a new play; `clients_gone_at_every_call` has the one who asked go away there instead. Afterwards
the play knows what was acknowledged (`tests.session_play`), and the house what a worker that never
died would have (`tests.mined_house`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from protocol.errors import HuginnError
from store.memory_tables import MemoryTables
from tests.crash.totals import DEATHS, TOTALS
from tests.mined_house import MinedHouse
from tests.mines import Bomb, Death
from tests.session_play import Play, Talk, Told
from tests.stores import FAST

CALLS_MAX = 120
# A conversation of more bytes is begun and never asked of the worker, whose context it would fill.
BYTES_MAX = 6_000
Step = Callable[[], Awaitable[object]]


class Stage:
    """A play on mined ground, in a house whose pages lie below `root`."""

    def __init__(self, root: Path, tables: MemoryTables | None = None, **options: Any) -> None:
        self.bomb = Bomb()
        self.house = MinedHouse(root, self.bomb, tables or MemoryTables(), **options)
        self.play = Play(self.house)
        self._responses = 0

    async def start(self) -> None:
        await self.house.start()
        await self.play.add_source("huskies")
        await self.play.add_source("sled")
        await self.play.open(None)
        await self.play.open(["huskies"])

    # -- what the worker has to do with a turn -------------------------------------------------

    def can_answer(self, told: Told) -> bool:
        there = self.house.works and told.state == "open" and told.blocks is not None
        return there and _is_short(told.blocks)

    async def answer(self, talk: Talk, told: Told) -> bool:
        """The worker's answer, kept before its end is told; whether it came in time."""
        assert told.blocks is not None
        _, answer = await self.house.answer(told.blocks, self._response())
        return await self.play.finish(talk, told, answer.text or "…")

    def can_settle(self, told: Told) -> bool:
        return told.answered is not None and _is_short(told.answered)

    async def settle(self, told: Told, *, late: bool = False) -> None:
        """What follows an answer, off everybody's path; `late`: its pages are written later."""
        assert told.answered is not None
        await self.house.settle(told.answered, self._response(), late=late)

    def _response(self) -> str:
        self._responses += 1
        return f"answer-{self._responses}"

    # -- dying, and what is found afterwards ---------------------------------------------------

    async def survive(self, step: Step) -> bool:
        """Take `step`; if the house died in it, another one is there. Whether it died."""
        try:
            await step()
        except (HuginnError, Death):
            died = self.bomb.clear()
            assert died, "refused without a death"
        else:
            died = self.bomb.clear()
        if died:
            await self.play.crash()
            await self.house.check()
        return died

    async def end(self) -> None:
        """A last death, and a turn of every talk from the house that rises."""
        self.bomb.clear()
        await self.play.crash()
        await self.house.check()
        self.play.expire()
        for talk in self.play.talks:
            told = await self.play.begin(talk, "once more")
            if told is not None and self.can_answer(told):
                assert told.blocks is not None
                await self.house.compare(told.blocks, self._response())
        await self.house.check()
        self.house.check_evidence()
        await self.house.room.drain()


def _is_short(blocks: Any) -> bool:
    return sum(len(block.content) for block in blocks) <= BYTES_MAX


Prepare = Callable[[Stage], Awaitable[Step]]


@asynccontextmanager
async def staged(tables: MemoryTables | None = None, **options: Any) -> AsyncIterator[Stage]:
    """A stage that has begun; nothing of it is left afterwards."""
    with TemporaryDirectory(dir=FAST) as root:
        stage = Stage(Path(root), tables, **options)
        try:
            await stage.start()
            yield stage
        finally:
            await stage.house.kill()


async def deaths_at_every_call(
    prepare: Prepare, *, after: bool, stride: int = 1, **options: Any
) -> Stage:
    """Die at each call of the step that `prepare` gives, or at every `stride`-th; the last stage,
    on which nobody died. `options` are those of a stage."""
    for at in range(1, CALLS_MAX, stride):
        async with staged(**options) as stage:
            step = await prepare(stage)
            stage.bomb.set(at, after=after)
            died = await stage.survive(step)
            await stage.end()
        if not died:
            assert at > 1, "the step asks nothing of anybody"
            TOTALS[DEATHS] += len(range(1, at, stride))
            return stage
    raise AssertionError(f"a step of {CALLS_MAX} calls")


async def clients_gone_at_every_call(prepare: Prepare, *, stride: int = 1, **options: Any) -> None:
    """The client goes away at each call of the step; the house lives on, and dies in the end."""
    for at in range(1, CALLS_MAX, stride):
        async with staged(**options) as stage:
            step = await prepare(stage)
            task = asyncio.ensure_future(step())
            stage.bomb.set(at, after=False, instead=task.cancel)
            await asyncio.wait({task})
            assert task.cancelled() or task.exception() is None
            went = stage.bomb.clear()
            await stage.house.room.settled()
            await stage.house.quiet()
            await stage.play.adopt()
            await stage.end()
        if not went:
            return
    raise AssertionError(f"a step of {CALLS_MAX} calls")
