"""Keeping one room's process alive: started, watched, replaced.

A worker is a process that may die at any instruction: a failed assertion in the model library
aborts it. The supervisor starts another at once if the last one lived a while, and waits longer
each time one dies young, so that a worker that cannot start does not eat the machine. What was in
flight fails with WorkerFault at the caller; nothing that was acknowledged lived there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from protocol.errors import HuginnError

log = logging.getLogger("huginn.supervisor")

# A worker that lived this long had loaded its model and served: its death is not a start problem.
_LIVED_SECONDS: Final = 10.0
_PAUSE_SECONDS_FIRST: Final = 0.25
_PAUSE_SECONDS_MAX: Final = 30.0


class Running(Protocol):
    """A worker that was started. `died` returns when it is gone; `stop` drains and ends it."""

    async def died(self) -> str: ...

    async def stop(self) -> None: ...


class Supervisor:
    """Keeps what `start` starts running until `stop`. `start` raises HuginnError if it cannot."""

    def __init__(self, name: str, start: Callable[[], Awaitable[Running]]) -> None:
        self._name = name
        self._start = start
        self._running: Running | None = None
        self._task: asyncio.Task[None] | None = None
        self.starts = 0
        self.last_error: str | None = None

    def begin(self, running: Running | None = None) -> None:
        """Start it, or go on with one that was started already."""
        self._running = running
        self._task = asyncio.create_task(self._keep(running), name=f"supervise {self._name}")

    async def _keep(self, first: Running | None) -> None:
        pause = _PAUSE_SECONDS_FIRST
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self.starts += 1
                self._running, first = first or await self._start(), None
                self.last_error = None
                reason = await self._running.died()
            except HuginnError as error:
                reason = error.message
            except Exception as error:
                # No process, no memory, a name still taken: what must not end is the watching.
                log.exception("%s cannot be started", self._name)
                reason = f"a start failed with {type(error).__name__}"
            self._running = None
            self.last_error = reason
            log.error("%s is gone: %s", self._name, reason)
            if loop.time() - began >= _LIVED_SECONDS:
                pause = _PAUSE_SECONDS_FIRST
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def stop(self) -> None:
        """Stop watching, then stop the worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._running is not None:
            await self._running.stop()
            self._running = None
