"""Items of a stream in lists of those that are there at once.

Where each thing that is handed on costs the same, however small it is, what came together goes
together: the last text of an answer and its end, or the tokens that came while the other side was
busy. Nothing waits for more to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator


async def batches(items: AsyncIterator[bytes]) -> AsyncGenerator[list[bytes], None]:
    """Every item of `items`, in order, in lists of at least one; raises what `items` raises.

    `items` is read ahead, without a bound: what a room streams is bounded by what was asked of it.
    Closing this closes `items`, wherever either of them waits.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    reading = asyncio.create_task(_read(items, queue))
    try:
        complete = False
        while not complete:
            came = [await queue.get()]
            while not queue.empty():
                came.append(queue.get_nowait())
            complete = came[-1] is None
            if batch := [item for item in came if item is not None]:
                yield batch
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read(items: AsyncIterator[bytes], queue: asyncio.Queue[bytes | None]) -> None:
    """Put every item into `queue`, and None when no more will come."""
    try:
        async for item in items:
            queue.put_nowait(item)
    finally:
        queue.put_nowait(None)
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
