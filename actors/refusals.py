"""What a room refuses, told to the authority: in batches, off everybody's path.

A refusal is put down and answered; telling happens in one task of the room's event loop. A flood
costs a bounded number of records: above `TOLD_PER_MINUTE` refusals are counted by the step that
refused, and the counts are told. What could not be told because the authority was away is counted
too, and told with the next (AUT-8).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from actors.ports import Clock
from protocol.capability import decode_link
from protocol.errors import CapabilityError
from protocol.messages.authority import Refusal, Refused

log = logging.getLogger("huginn.refusals")

# How long what was refused waits for more, and how long telling may take.
BATCH_SECONDS: Final = 1.0
REPLY_SECONDS_MAX: Final = 5.0
# A person who mistypes a key, or an attack under way, is seen well before that.
TOLD_PER_MINUTE: Final = 120
_MINUTE_NS: Final = 60 * 10**9

Tell = Callable[[Refused], Awaitable[None]]


class RefusalQueue:
    """Refusals until they are told by `tell` (None: nobody is told, and nothing is kept)."""

    def __init__(self, clock: Clock, tell: Tell | None) -> None:
        self._clock = clock
        self._tell = tell
        self._waiting: list[Refusal] = []
        self._counted: Counter[str] = Counter()
        self._minute_ns = clock.steady_ns()
        self._told = 0
        self._now = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many refusals wait, told one by one or counted."""
        return len(self._waiting) + self._counted.total()

    def put(self, step: str, op: str, request_id: str, chain: Sequence[bytes] = ()) -> None:
        """Tell, later, that `step` refused `op`. Never waits and never raises."""
        if self._tell is None:
            return
        if self._may_tell():
            self._waiting.append(
                Refusal(
                    step=step,
                    op=op,
                    request_id=request_id,
                    at_ns=self._clock.wall_ns(),
                    principal=_principal(chain),
                )
            )
        else:
            self._counted[step] += 1
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send(self._tell))

    async def settle(self) -> None:
        """Tell what waits now; returns when that was tried."""
        if self._sender is None or self._tell is None:
            return
        self._now.set()
        await asyncio.gather(self._sender, return_exceptions=True)
        if len(self):
            await self._send(self._tell)

    def _may_tell(self) -> bool:
        now_ns = self._clock.steady_ns()
        if now_ns - self._minute_ns >= _MINUTE_NS:
            self._minute_ns, self._told = now_ns, 0
        self._told += 1
        return self._told <= TOLD_PER_MINUTE

    async def _send(self, tell: Tell) -> None:
        while len(self):
            with suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._now.wait()
            refused = Refused(refusals=self._waiting, counted=dict(self._counted))
            self._waiting = []
            self._counted.clear()
            try:
                async with asyncio.timeout(REPLY_SECONDS_MAX):
                    await tell(refused)
            except Exception as error:
                # The refusal stands whatever becomes of its record; the next one tells of it.
                self._counted.update(refused.counted)
                self._counted.update(each.step for each in refused.refusals)
                log.warning("%d refusals are not on record yet: %r", len(self), error)
                return


def _principal(chain: Sequence[bytes]) -> bytes | None:
    try:
        return decode_link(chain[0]).capability.aud if chain else None
    except CapabilityError:
        return None
