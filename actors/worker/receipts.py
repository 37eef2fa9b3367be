"""Receipts: what a turn cost, what it reused, and who may read that.

How tokens are counted. A head counts to its own block, whichever advance fed it, so a block's
`tokens` are its own and a history's blocks count the same in every turn. The opener is part of the
prompt and of no block: `prompt_tokens` = the blocks' tokens + the opener's. `reused` is how much
of a block's own tokens lay in the prefix that was found; what of the opener was reused is the rest
of `reused_tokens`.

A receipt says what was warm, so it is kept by domain and read with the right `telemetry` there; one
whose prompt touched the public domain, warm or not, with that right there as well. Others get
`redacted`: the logical figures, with nothing about reuse, time or state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol, cast

from msgspec import structs

from protocol import cbor
from protocol.errors import DiskFull, StoreFault
from protocol.ids import StateId
from protocol.messages.assembler import Segment
from protocol.messages.worker import BlockReceipt, Receipt
from protocol.record import decode_record, encode_record
from protocol.tokens import TOKEN_BYTES

log = logging.getLogger("huginn.worker")

# What waits in memory for room on the disk: some megabytes at most.
WAITING_MAX: Final = 1024

# Where a prefix may lie, the nearest first.
TIERS: Final = ("device", "host", "disk")


def block_receipts(segments: Sequence[Segment], reused_tokens: int) -> list[BlockReceipt]:
    """One entry for each block, of a stream whose first `reused_tokens` tokens were found."""
    found: list[BlockReceipt] = []
    start = 0
    for segment in segments:
        tokens = (len(segment.head) + len(segment.content)) // TOKEN_BYTES
        found.append(
            BlockReceipt(
                block=segment.block,
                role=segment.role,
                type=segment.type,
                tokens=tokens,
                reused=min(tokens, max(0, reused_tokens - start)),
            )
        )
        start += tokens
    return found


def redacted(receipt: Receipt) -> Receipt:
    """The receipt for a reader without `telemetry`: the same after a cold run and a warm one."""
    return Receipt(
        response=receipt.response,
        profile=receipt.profile,
        prompt_tokens=receipt.prompt_tokens,
        reused_tokens=0,
        prefilled_tokens=receipt.prompt_tokens,
        completion_tokens=receipt.completion_tokens,
        tiers={},
        pages_verified=0,
        pages_refused=[],
        blocks=[
            BlockReceipt(block=b.block, role=b.role, type=b.type, tokens=b.tokens, reused=0)
            for b in receipt.blocks
        ],
        advances=0,
        queued_ns=0,
        ttft_ns=0,
        total_ns=0,
        finish=receipt.finish,
        seed=receipt.seed,
        reproducible=receipt.reproducible,
        context=receipt.context,
        withheld=True,
    )


class ReceiptTable(Protocol):
    """Where receipts are kept: a keyed table whose calls may block."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def get(self, key: bytes) -> bytes | None: ...

    def delete(self, key: bytes) -> bool: ...

    def items(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]: ...

    def trim(self, keep: int, prefix: bytes) -> int: ...


class Receipts:
    """The receipts of one worker, the newest `kept` of each domain. Used in one event loop.

    `record` and `resolve` never wait: a task writes behind them. What finds no room on the disk
    waits, the newest `WAITING_MAX` of it, and is written with the next. `blocking` runs a call that
    may block (`asyncio.to_thread`, or something in its place).
    """

    def __init__(
        self,
        table: ReceiptTable,
        kept: int,
        *,
        blocking: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        self._table = table
        self._kept = kept
        self._blocking = blocking
        self._recent: dict[bytes, Receipt] = {}  # not yet written, or not yet final
        self._dirty: set[bytes] = set()
        self._final: set[bytes] = set()
        self._writer: asyncio.Task[None] | None = None
        self._lacks_room = False

    def record(self, domain: str, receipt: Receipt) -> None:
        """Keep a receipt whose state digest is still to come."""
        key = _key(domain, receipt.response)
        self._recent[key] = receipt
        self._final.discard(key)
        self._mark(key)

    def resolve(self, domain: str, response: str, digest: StateId | None) -> None:
        """The state digest of a recorded receipt is known, or never will be (None)."""
        key = _key(domain, response)
        receipt = self._recent.get(key)
        if receipt is None:
            return
        if digest is not None:
            self._recent[key] = structs.replace(receipt, state_digest=digest)
        self._final.add(key)
        self._mark(key)

    async def get(self, domain: str, response: str) -> Receipt | None:
        """The receipt of that response in that domain, if it is kept."""
        key = _key(domain, response)
        recent = self._recent.get(key)
        if recent is not None:
            return recent
        value = await self._blocking(lambda: self._table.get(key))
        return decode_record(Receipt, value) if isinstance(value, bytes) else None

    async def forget(self, domain: str) -> int:
        """Delete every receipt of `domain`; how many were written down."""
        await self.flush()
        start = _start(domain)
        for key in [key for key in self._recent if key.startswith(start)]:
            del self._recent[key]
            self._dirty.discard(key)
            self._final.discard(key)
        found = await self._blocking(partial(self._delete, start))
        return found if isinstance(found, int) else 0

    def _delete(self, start: bytes) -> int:
        return sum(self._table.delete(key) for key, _ in self._table.items(start))

    async def flush(self) -> None:
        """Wait until everything recorded so far is written, lost with a warning, or tried once
        more."""
        if self._dirty:
            self._begin()
        while self._writer is not None:
            await self._writer

    def _mark(self, key: bytes) -> None:
        self._dirty.add(key)
        self._begin()

    def _begin(self) -> None:
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._dirty:
                # One that was resolved without a digest while it was written is written already.
                batch = {key: self._recent[key] for key in self._dirty if key in self._recent}
                self._dirty.clear()
                try:
                    await self._blocking(partial(self._put, batch))
                    self._lacks_room = False
                except DiskFull as error:
                    self._put_off(batch, error)
                    return
                except StoreFault as error:
                    log.warning("%d receipts are lost, serving goes on: %s", len(batch), error)
                for key, receipt in batch.items():
                    if key in self._final and self._recent.get(key) is receipt:
                        del self._recent[key]
                        self._final.discard(key)
        finally:
            self._writer = None

    def _put_off(self, batch: Collection[bytes], error: DiskFull) -> None:
        """Have `batch` wait for the next attempt; of what waits the newest stay."""
        self._dirty.update(key for key in batch if key in self._recent)
        if not self._lacks_room:
            log.warning("receipts wait for room on the disk, serving goes on: %s", error)
        self._lacks_room = True
        waiting = [key for key in self._recent if key in self._final and key in self._dirty]
        for key in waiting[: max(0, len(waiting) - WAITING_MAX)]:
            del self._recent[key]
            self._dirty.discard(key)
            self._final.discard(key)

    def _put(self, batch: dict[bytes, Receipt]) -> None:
        for key, receipt in batch.items():
            self._table.put(key, encode_record(receipt))
        # Each domain's own: nobody's receipts are gone because others asked for much.
        for start in sorted({_start(_domain(key)) for key in batch}):
            self._table.trim(self._kept, start)


def _key(domain: str, response: str) -> bytes:
    return cbor.encode([domain, response])


def _domain(key: bytes) -> str:
    domain, _ = cast("tuple[str, str]", cbor.decode(key))
    return domain


def _start(domain: str) -> bytes:
    """With what the keys of `domain`, and no others, begin: a text carries its own length."""
    return _key(domain, "").removesuffix(cbor.encode(""))


def traces(table: ReceiptTable, domains: Sequence[str]) -> list[str]:
    """Of which `domains` there are receipts still."""
    return [f"receipts of {domain}" for domain in domains if table.items(_start(domain))]
