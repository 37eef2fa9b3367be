"""Drivers: every engine is stepped until it rests, and again when it is woken."""

from __future__ import annotations

import asyncio
import threading

import pytest

from actors.worker.drivers import Driver, LoopDriver, ThreadDriver
from protocol.errors import HuginnError
from tests.worker_rooms import until


class Countdown:
    """Stands in for an engine: has `left` things to do."""

    def __init__(self) -> None:
        self.left = 0
        self.steps = 0
        self.failed: list[HuginnError] = []
        self.broken = False

    def step(self) -> bool:
        self.steps += 1
        if self.broken:
            self.broken = False
            raise ZeroDivisionError
        self.left = max(0, self.left - 1)
        return self.left > 0

    def fail_all(self, error: HuginnError) -> None:
        self.failed.append(error)


@pytest.mark.parametrize("kind", [ThreadDriver, LoopDriver])
async def test_it_steps_when_woken_and_rests_when_done(kind: type[Driver]) -> None:
    driver, engine = kind(), Countdown()
    driver.start(engine)  # type: ignore[arg-type]
    for _ in range(3):
        engine.left = 5
        driver.wake()
        await until(lambda: engine.left == 0)
    await asyncio.sleep(0.01)
    rested = engine.steps
    await asyncio.sleep(0.02)
    assert engine.steps == rested
    await driver.stop()
    engine.left = 5
    driver.wake()
    await asyncio.sleep(0.01)
    assert engine.left == 5


@pytest.mark.parametrize("kind", [ThreadDriver, LoopDriver])
async def test_a_fault_of_the_engine_does_not_stop_it(kind: type[Driver]) -> None:
    driver, engine = kind(), Countdown()
    engine.broken = True
    engine.left = 3
    driver.start(engine)  # type: ignore[arg-type]
    driver.wake()
    await until(lambda: engine.left == 0)
    assert len(engine.failed) == 1
    await driver.stop()


async def test_a_stop_between_two_steps_is_seen() -> None:
    driver, engine = ThreadDriver(), Countdown()

    class Late(threading.Event):
        """The stop comes in the very moment before the event is cleared."""

        def clear(self) -> None:
            if engine.steps:
                driver._stopping = True
                self.set()
            super().clear()

    driver._woken = Late()
    engine.left = 2
    driver.start(engine)  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        await driver.stop()
    assert engine.steps == 1
