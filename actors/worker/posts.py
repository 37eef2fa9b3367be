"""What the engine's thread has to say to the room's event loop, in as few wakes as it takes.

Waking the loop costs the engine more than the tokens that it tells of: the loop then wants the
interpreter while the engine still needs it to choose the next tokens. So events are gathered, and
`flush` hands them over in one wake just before the engine computes, which needs no interpreter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from actors.worker.jobs import Event

log = logging.getLogger("huginn.worker")

Handle = Callable[[Event], None]


class Posts:
    """Events for one event loop: that in which `poster` is called."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gathered: deque[tuple[Handle, Event]] = deque()

    def poster(self, handle: Handle) -> Handle:
        """A function that has `handle` called in this loop, in order. Any thread may call it; what
        it was given arrives after the next `flush`."""
        self._loop = asyncio.get_running_loop()
        return partial(self._gather, handle)

    def flush(self) -> None:
        """Send what was gathered. Any thread may call; a loop that is closed hears no more."""
        if self._gathered and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _gather(self, handle: Handle, event: Event) -> None:
        self._gathered.append((handle, event))

    def _deliver(self) -> None:
        while self._gathered:
            handle, event = self._gathered.popleft()
            try:
                handle(event)
            except Exception:
                # As the loop does with a callback: one that fails takes no other with it.
                log.exception("an event of the engine was not taken in")
