"""What makes an engine step: a thread of its own, or turns of an event loop.

A worker process drives its engine with a thread, because one step may take seconds. A simulation
drives it from its loop, so that everything that happens is in one order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Protocol

from actors.worker.engine import Engine
from protocol.errors import WorkerFault

log = logging.getLogger("huginn.worker")


class Driver(Protocol):
    """Steps its engine whenever there is something to do."""

    def start(self, engine: Engine) -> None:
        """Begin; once."""

    def wake(self) -> None:
        """Something was submitted or cancelled. Any thread may call."""

    async def stop(self) -> None:
        """Step no more, and return when the step that runs has ended."""


def step(engine: Engine) -> bool:
    """One step that never raises: what no job can be blamed for fails them all."""
    try:
        return engine.step()
    except Exception:
        log.exception("a fault in the engine: every job fails and every stream is cleared")
        engine.fail_all(WorkerFault("the worker's engine failed; its log says why"))
        return True


class ThreadDriver:
    """A thread that sleeps while there is nothing to do."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, engine: Engine) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(engine,), name="huginn-engine", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        self._stopping = True
        self._woken.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, engine: Engine) -> None:
        while True:
            # Cleared before anything is looked at: what comes during a step wakes the next one, and
            # a stop is either seen here or wakes the wait.
            self._woken.clear()
            if self._stopping:
                return
            if not step(engine):
                self._woken.wait()


class LoopDriver:
    """Turns of the running event loop; everything else in the loop gets its turn in between."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._scheduled = False

    def start(self, engine: Engine) -> None:
        self._engine = engine

    def wake(self) -> None:
        if not self._scheduled and self._engine is not None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    async def stop(self) -> None:
        self._engine = None

    def _run(self) -> None:
        self._scheduled = False
        if self._engine is not None and step(self._engine):
            self.wake()
