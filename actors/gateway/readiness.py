"""Whether the worker can be asked, as far as the gateway knows.

A message is signed for now and a room takes nothing that was signed before it started, so a request
that finds the worker gone must not wait with a sealed message: it waits here, before it is sealed.
"""

from __future__ import annotations

import asyncio

from protocol.errors import WorkerFault


class Readiness:
    """`gained` and `lost` say what was seen; `wait` is for those who need it."""

    def __init__(self, *, ready: bool) -> None:
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        if ready:
            self._ready.set()

    @property
    def is_ready(self) -> bool:
        """What was seen last; true is no promise."""
        return self._ready.is_set()

    def gained(self) -> None:
        """The worker answered: whoever waits goes on."""
        self._lost.clear()
        self._ready.set()

    def lost(self) -> None:
        """The worker is gone: whoever watches is woken."""
        self._ready.clear()
        self._lost.set()

    async def wait(self, seconds_max: float) -> None:
        """Returns when the worker can be asked; WorkerFault if that takes over `seconds_max`."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._ready.wait()
        except TimeoutError as error:
            raise WorkerFault("the worker is being started: try again in a few seconds") from error

    async def until_lost(self, seconds_max: float) -> None:
        """Returns when someone saw the worker gone, or after `seconds_max`."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._lost.wait()
        except TimeoutError:
            return
