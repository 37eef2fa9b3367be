"""Readiness: who needs the worker waits, and hears when it takes too long."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway.readiness import Readiness
from protocol.errors import WorkerFault


async def test_one_that_waits_is_let_go_when_the_worker_is_there() -> None:
    readiness = Readiness(ready=False)
    waiting = asyncio.create_task(readiness.wait(120))
    await asyncio.sleep(0)
    assert not waiting.done()
    readiness.gained()
    await asyncio.wait_for(waiting, 60)
    assert readiness.is_ready


async def test_waiting_ends_with_a_fault_that_says_what_to_do() -> None:
    readiness = Readiness(ready=True)
    readiness.lost()
    with pytest.raises(WorkerFault, match="try again"):
        await readiness.wait(0.01)


async def test_a_loss_wakes_the_one_who_watches() -> None:
    readiness = Readiness(ready=True)
    watching = asyncio.create_task(readiness.until_lost(120))
    await asyncio.sleep(0)
    readiness.lost()
    await asyncio.wait_for(watching, 60)
    assert not readiness.is_ready


async def test_watching_ends_by_itself() -> None:
    readiness = Readiness(ready=True)
    await asyncio.wait_for(readiness.until_lost(0.01), 60)
    assert readiness.is_ready
