"""The logical ledger: what each principal asked for, whatever it cost (AUT-6).

An answer is charged with the whole of its prompt when it is admitted, and with its tokens when they
are told: so the same requests are charged the same, cold or warm, whosever warmth it is. Settling
is this service's own thrift and nobody's charge. Sums are written behind the answer. A disk that
fails or is full costs no answer: what could not be written is written with the next charge, and is
lost only with the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Protocol

from msgspec import structs

from protocol.errors import HuginnError
from protocol.messages.worker import Charge, Charges
from protocol.record import decode_record, encode_record

log = logging.getLogger("huginn.worker")


class ChargeTable(Protocol):
    """Where sums are kept: a keyed table whose calls may block."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> bool: ...

    def items(self) -> list[tuple[bytes, bytes]]: ...


class LogicalLedger:
    """Over `table`, a row for each principal's public key; without one, or with one that cannot be
    read, it is kept in memory alone. Used in one event loop. `blocking` as in `Receipts`."""

    def __init__(
        self,
        table: ChargeTable | None,
        *,
        blocking: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        self._table = table
        self._blocking = blocking
        self._sums: dict[bytes, Charge] = {}
        self._dirty: set[bytes] = set()
        self._writer: asyncio.Task[None] | None = None
        self._failing = False
        try:
            for key, row in [] if table is None else table.items():
                self._sums[key] = decode_record(Charge, row)
        except HuginnError as error:
            # Nothing is written either: what is there may come back.
            log.warning("the ledger cannot be read and counts from 0 in memory: %s", error)
            self._table, self._sums = None, {}

    def charge(
        self, principal: bytes, *, answers: int = 0, prompt_tokens: int = 0, answer_tokens: int = 0
    ) -> None:
        """Add to the sums of the principal with that key. Raises nothing, and waits for nothing."""
        sums = self.of(principal)
        self._sums[principal] = structs.replace(
            sums,
            answers=sums.answers + answers,
            prompt_tokens=sums.prompt_tokens + prompt_tokens,
            answer_tokens=sums.answer_tokens + answer_tokens,
        )
        self._mark(principal)

    def of(self, principal: bytes) -> Charge:
        """The sums of one principal; zeros for one that never asked."""
        empty = Charge(principal=principal, answers=0, prompt_tokens=0, answer_tokens=0)
        return self._sums.get(principal, empty)

    def all(self) -> Charges:
        """The sums of all, by key."""
        return Charges(rows=[self._sums[key] for key in sorted(self._sums)])

    async def forget(self, principals: Collection[bytes]) -> int:
        """Forget the sums of these; how many had any. What the table raises that cannot delete."""
        gone = [key for key in principals if self._sums.pop(key, None) is not None]
        await self.flush()
        table = self._table
        if table is not None:
            await self._blocking(lambda: [table.delete(key) for key in principals])
        return len(gone)

    async def flush(self) -> None:
        """Wait until all that was charged is written, or has been tried once more."""
        if self._dirty and self._writer is None and self._table is not None:
            self._begin(self._table)
        while self._writer is not None:
            await self._writer

    def _mark(self, principal: bytes) -> None:
        if self._table is None:
            return
        self._dirty.add(principal)
        if self._writer is None:
            self._begin(self._table)

    def _begin(self, table: ChargeTable) -> None:
        self._writer = asyncio.get_running_loop().create_task(self._write(table))

    async def _write(self, table: ChargeTable) -> None:
        try:
            while self._dirty:
                rows = [self._sums[key] for key in self._dirty if key in self._sums]
                self._dirty.clear()
                try:
                    await self._blocking(partial(_put, table, rows))
                except HuginnError as error:
                    self._dirty.update(row.principal for row in rows)
                    if not self._failing:
                        log.warning("charges are not written down for now: %s", error)
                    self._failing = True
                    return
                self._failing = False
        finally:
            self._writer = None


def _put(table: ChargeTable, rows: list[Charge]) -> None:
    for row in rows:
        table.put(row.principal, encode_record(row))
