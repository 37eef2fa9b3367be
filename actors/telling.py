"""Telling rooms that run what holds now: again and again, until they have taken it.

What is told is durable before, and a room that starts asks for it; so one that does not run needs
no telling. One that runs and does not take it (its nonce window is full, it hangs, a message to it
is lost) would go on by what held before: it is told again until it has taken the latest, and until
then is among those that `waiting` names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from protocol.errors import HuginnError

log = logging.getLogger("huginn.room")

# How long whoever tells waits for the rooms; what a room did not take by then goes on behind.
PATIENCE_SECONDS: Final = 2.0
# One message. A room that hangs for longer is asked again.
_CALL_SECONDS: Final = 10.0
_PAUSE_SECONDS_FIRST: Final = 0.02
_PAUSE_SECONDS_MAX: Final = 5.0


class Telling:
    """`say` gives one room what holds at that time; whether the room runs. What it raises is tried
    again. Used in one event loop."""

    def __init__(
        self,
        say: Callable[[str], Awaitable[bool]],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._say = say
        self._patience_seconds = patience_seconds
        # How often each room was to be told: a message that went out before the last time is old.
        self._asked: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> list[str]:
        """The rooms that run and have not taken the latest, as far as is known."""
        return sorted(self._tasks)

    async def tell(self, rooms: Collection[str]) -> list[str]:
        """Tell `rooms`. Returns when all that run have taken it, or after the patience; those that
        have not taken it then, which are told on."""
        for room in rooms:
            self._asked[room] = self._asked.get(room, 0) + 1
            if room not in self._tasks:
                task = asyncio.get_running_loop().create_task(
                    self._until_taken(room), name=f"tell {room}"
                )
                self._tasks[room] = task
        tasks = [self._tasks[room] for room in rooms]
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience_seconds)
        return sorted(set(rooms) & self._tasks.keys())

    async def drain(self) -> None:
        """Stop telling. A room that was not told asks when it starts."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_taken(self, room: str) -> None:
        pause, failed = _PAUSE_SECONDS_FIRST, 0
        try:
            while True:
                asked = self._asked[room]
                try:
                    async with asyncio.timeout(_CALL_SECONDS):
                        runs = await self._say(room)
                except (HuginnError, TimeoutError) as error:
                    if not failed:
                        log.warning("the %s room did not take what it was told: %s", room, error)
                    failed += 1
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _PAUSE_SECONDS_MAX)
                    continue
                if asked == self._asked[room]:
                    break
            if failed:
                log.info(
                    "the %s room %s, after %d tries",
                    room,
                    "took what it was told" if runs else "does not run: it asks when it starts",
                    failed + 1,
                )
        finally:
            del self._tasks[room]
