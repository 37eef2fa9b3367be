"""Which blocks are public, as this worker knows it, and what it does when one is not any more.

The ropes room says that something changed; what is public now is then asked of it, one question
after the other, so that whatever order messages arrive in, the last answer is the newest. Of a
withdrawal everything that lies in the public domain goes: a page is derived from all blocks before
it, and nothing in it names them. That costs the other public prefixes one prefill each.

The set is kept beside the receipts before any state is derived under it: a worker that was down
when a block was withdrawn finds out by comparing, and deletes what is left of it before it serves.
Until the ropes room has answered once, nothing is public.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Protocol

from protocol.errors import HuginnError
from protocol.ids import DIGEST_BYTES, BlockId
from protocol.messages.ropes import Publications

log = logging.getLogger("huginn.worker")

_KEY: Final = b"blocks"


class PublicTable(Protocol):
    """Where the set is kept: a keyed table whose calls may block."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def get(self, key: bytes) -> bytes | None: ...


class PublicBlocks:
    """`ask` asks the ropes room; `withdraw` returns when nothing is left in the public domain, and
    raises what kept it from that; `blocking` runs a call that may block. Used in one event loop."""

    def __init__(
        self,
        table: PublicTable | None,
        ask: Callable[[], Awaitable[Publications]],
        withdraw: Callable[[], Awaitable[None]],
        *,
        blocking: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self._table = table
        self._ask = ask
        self._withdraw = withdraw
        self._blocking = blocking
        self._blocks: frozenset[BlockId] = frozenset()
        self._kept: frozenset[BlockId] | None = None
        self._asking = asyncio.Lock()
        self._known = False

    def leading(self, blocks: Iterable[BlockId]) -> int:
        """How many of `blocks`, from the first on, are public."""
        count = 0
        for block in blocks:
            if block not in self._blocks:
                break
            count += 1
        return count

    async def known(self) -> None:
        """Ask, if no answer was had yet; without one nothing is public, which is never wrong."""
        if not self._known:
            try:
                await self.refresh()
            except HuginnError as error:
                log.warning("it is not known what is public: %s", error.message)

    async def refresh(self) -> None:
        """Ask what is public, and act on it. Raises what the ropes room answers, and StoreFault for
        states that could not be deleted: then they are not used either, and the next call tries
        again."""
        async with self._asking:
            found = await self._ask()
            blocks = frozenset(row.block for row in found.blocks)
            # From here on nothing is derived or found under what was withdrawn.
            self._blocks &= blocks
            kept = await self._kept_blocks()
            if kept is None or not kept <= blocks:
                await self._withdraw()
            if kept != blocks:
                await self._keep(blocks)
            self._blocks = blocks
            self._known = True

    async def _kept_blocks(self) -> frozenset[BlockId] | None:
        """What was public when this was last written down; None if nobody knows."""
        if self._kept is None and self._table is not None:
            value = await self._blocking(partial(self._table.get, _KEY))
            if isinstance(value, bytes) and len(value) % DIGEST_BYTES == 0:
                self._kept = frozenset(
                    BlockId(value[at : at + DIGEST_BYTES])
                    for at in range(0, len(value), DIGEST_BYTES)
                )
        return self._kept

    async def _keep(self, blocks: frozenset[BlockId]) -> None:
        if self._table is not None:
            value = b"".join(sorted(block.digest for block in blocks))
            await self._blocking(partial(self._table.put, _KEY, value))
        self._kept = blocks
