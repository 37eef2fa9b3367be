"""What a job has said and its reader has not yet read.

Decoding never waits for a reader. Beyond `ITEMS_MAX` unread items a new delta is joined to the
last one and a new progress report replaces the last one, so a reader that sleeps costs at most
one item more than an answer's text, which the job's token limit bounds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from protocol.errors import HuginnError
from protocol.messages.worker import Item

ITEMS_MAX: Final = 256


class Outbox:
    """Used in one event loop."""

    def __init__(self) -> None:
        self._items: deque[Item | HuginnError] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item | HuginnError) -> None:
        """Add an item; never waits."""
        last = self._items[-1] if self._items else None
        if isinstance(item, Item) and isinstance(last, Item) and item.kind == last.kind:
            if item.kind == "prefill":
                self._items[-1] = item
                return
            if item.kind == "delta" and len(self._items) >= ITEMS_MAX:
                self._items[-1] = join(last, item)
                return
        self._items.append(item)
        self._filled.set()

    async def get(self) -> Item | HuginnError:
        """The oldest item, when there is one."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()


def join(first: Item, second: Item) -> Item:
    """Two deltas of one answer as one."""
    both = first.logprobs is not None and second.logprobs is not None
    return Item(
        kind="delta",
        text=(first.text or "") + (second.text or ""),
        ids=(first.ids or b"") + (second.ids or b""),
        logprobs=[*(first.logprobs or []), *(second.logprobs or [])] if both else None,
    )
