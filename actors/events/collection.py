"""Idle sessions are looked for now and then, when somebody uses the room: no timer of its own.

A collection runs beside the request that set it off, and never twice at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from actors.events.sessions import Sessions
from actors.ports import Clock
from protocol.errors import HuginnError

log = logging.getLogger("huginn.events")

_LOOK_NS: Final = 3600 * 10**9


class Collector:
    """Collects what is idle of `sessions`, at most once an hour, and counts it as `collected`."""

    def __init__(self, sessions: Sessions, counters: Counter[str], clock: Clock) -> None:
        self._sessions = sessions
        self._counters = counters
        self._clock = clock
        self._looked_ns: int | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin a collection, if the last one is long enough ago."""
        now_ns = self._clock.steady_ns()
        if self._looked_ns is not None and now_ns - self._looked_ns < _LOOK_NS:
            return
        self._looked_ns = now_ns
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._collect())

    async def ended(self) -> None:
        """Wait until no collection runs."""
        if self._task is not None:
            await self._task

    async def _collect(self) -> None:
        try:
            self._counters["collected"] += await self._sessions.collect()
        except HuginnError as error:
            log.warning("idle sessions are kept longer than configured: %s", error.message)
