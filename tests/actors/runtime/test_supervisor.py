"""The supervisor: a dead worker is replaced, one that dies young is not hammered."""

from __future__ import annotations

import asyncio

import pytest

from actors.runtime.supervisor import Running, Supervisor
from protocol.errors import WorkerFault


class Mortal:
    """A worker that dies when told to."""

    def __init__(self) -> None:
        self.death = asyncio.Event()
        self.stopped = False

    async def died(self) -> str:
        await self.death.wait()
        return "died as told"

    async def stop(self) -> None:
        self.stopped = True


class Nursery:
    """Starts workers, and fails as often as asked."""

    def __init__(self, failures: int = 0, failure: Exception | None = None) -> None:
        self.born: list[Mortal] = []
        self.failures = failures
        self.failure = failure or WorkerFault("cannot load the model")
        self.times: list[float] = []

    async def start(self) -> Running:
        self.times.append(asyncio.get_running_loop().time())
        if self.failures:
            self.failures -= 1
            raise self.failure
        self.born.append(Mortal())
        return self.born[-1]

    async def until_born(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.born) < count:
                await asyncio.sleep(0.01)


@pytest.mark.req("OPS-6")
async def test_a_dead_worker_is_replaced() -> None:
    nursery = Nursery()
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin()
    await nursery.until_born(1)
    nursery.born[0].death.set()
    await nursery.until_born(2)
    assert supervisor.starts == 2
    await supervisor.stop()
    assert nursery.born[1].stopped
    assert not nursery.born[0].stopped


async def test_pauses_grow_while_it_dies_young() -> None:
    nursery = Nursery(failures=3)
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin()
    await nursery.until_born(1)
    await supervisor.stop()
    pauses = [
        after - before for before, after in zip(nursery.times, nursery.times[1:], strict=False)
    ]
    assert len(pauses) == 3
    assert pauses[0] >= 0.2
    assert pauses[1] > pauses[0]
    assert pauses[2] > pauses[1]


async def test_why_it_is_gone_is_kept_until_it_runs_again() -> None:
    nursery = Nursery(failures=1)
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin()
    async with asyncio.timeout(60):
        while supervisor.last_error is None:
            await asyncio.sleep(0.01)
    assert supervisor.last_error == "cannot load the model"
    await nursery.until_born(1)
    assert supervisor.last_error is None
    await supervisor.stop()


async def test_stopping_starts_no_other() -> None:
    nursery = Nursery()
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin()
    await nursery.until_born(1)
    await supervisor.stop()
    nursery.born[0].death.set()
    await asyncio.sleep(0.05)
    assert len(nursery.born) == 1
    assert nursery.born[0].stopped


async def test_no_failure_of_a_start_ends_the_watching() -> None:
    nursery = Nursery(failures=2, failure=OSError("no process to be had"))
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin()
    await nursery.until_born(1)
    assert supervisor.starts == 3
    await supervisor.stop()
    assert nursery.born[0].stopped


async def test_one_that_runs_already_is_watched_and_replaced_when_it_dies() -> None:
    nursery, first = Nursery(), Mortal()
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin(first)
    await asyncio.sleep(0.05)
    assert nursery.born == []
    first.death.set()
    await nursery.until_born(1)
    await supervisor.stop()
    assert nursery.born[0].stopped
    assert not first.stopped


async def test_one_that_runs_already_is_stopped_too() -> None:
    nursery, first = Nursery(), Mortal()
    supervisor = Supervisor("w", nursery.start)
    supervisor.begin(first)
    await supervisor.stop()
    assert first.stopped
    assert nursery.born == []
