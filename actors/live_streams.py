"""The streams that a room is giving, so that a revocation ends them in their middle (AUT-4).

A message is admitted once; a stream goes on for as long as an answer, or for good. When the
authority says what is revoked, every stream whose chain has such a link ends with an error, whether
it waits for its next item or has one in hand: nothing more goes out, and what produces the items is
stopped as if the reader had gone away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from typing import TypeVar

from protocol.errors import CapabilityError
from protocol.handle import Handle

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Live:
    """One stream. `waiting` while its next item is waited for."""

    handle: Handle
    waiting: asyncio.Timeout | None = None
    revoked: bool = False


class LiveStreams:
    """Used in one event loop."""

    def __init__(self) -> None:
        self._live: set[_Live] = set()

    def __len__(self) -> int:
        """How many streams are given now."""
        return len(self._live)

    def revoke(self, revoked: Collection[bytes]) -> None:
        """End every stream that goes out under one of these (digests of capability ids)."""
        for live in self._live:
            if any(link.digest in revoked for link in live.handle.lineage):
                live.revoked = True
                if live.waiting is not None:
                    live.waiting.reschedule(asyncio.get_running_loop().time())

    async def until_revoked(
        self, handle: Handle, items: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """`items`, as long as `handle` stands. When it does not any more it raises CapabilityError,
        step `revocation`; and what `items` raises."""
        live = _Live(handle)
        self._live.add(live)
        try:
            while True:
                try:
                    async with asyncio.timeout(None) as live.waiting:
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if not live.revoked:
                        raise
                finally:
                    live.waiting = None
                if live.revoked:
                    raise CapabilityError(
                        "revocation",
                        "the handle was revoked while the answer was given: it ends here",
                    )
                yield item
        finally:
            self._live.discard(live)
