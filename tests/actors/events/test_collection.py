"""Collection: now and then, once at a time, and a failure is no request's business."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from actors.events.collection import Collector
from protocol.errors import StoreFault
from tests.worker_rooms import SECOND, HandClock


class Idle:
    """In place of sessions: counts collections, each of which waits for `gate`."""

    def __init__(self) -> None:
        self.began = 0
        self.gate = asyncio.Event()
        self.trouble: Exception | None = None

    async def collect(self) -> int:
        self.began += 1
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return 2


async def test_at_most_once_an_hour_and_never_twice_at_once() -> None:
    idle, clock, counters = Idle(), HandClock(), Counter[str]()
    collector = Collector(idle, counters, clock)  # type: ignore[arg-type]
    await collector.ended()
    for _ in range(3):
        collector.look()
    await asyncio.sleep(0)
    assert idle.began == 1
    clock.now_ns += 3600 * SECOND
    collector.look()
    idle.gate.set()
    await collector.ended()
    assert (idle.began, counters["collected"]) == (1, 2)
    clock.now_ns += 3600 * SECOND
    collector.look()
    await collector.ended()
    assert (idle.began, counters["collected"]) == (2, 4)


async def test_trouble_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    idle = Idle()
    idle.trouble = StoreFault("the disk is full")
    idle.gate.set()
    collector = Collector(idle, Counter(), HandClock())  # type: ignore[arg-type]
    collector.look()
    await collector.ended()
    assert "the disk is full" in caplog.text
