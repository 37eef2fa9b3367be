"""The physical ledger: what a worker really used, for the operator (AUT-6).

Seconds of the processor and of the device, bytes that were read from and written to each tier of
pages, and what lay where for how long: tokens of live streams, bytes of pages, each times seconds.
It depends on who was warm, so nobody but the operator is told. It is measured from outside what is
measured: whenever something ends, what has grown since is added, and what lies there now counts as
having lain there all that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from actors.ports import Clock
from actors.worker.engine import Engine
from actors.worker.tiers import Tiers
from protocol.errors import HuginnError
from protocol.ids import ProfileId
from protocol.messages.worker import PhysicalUse
from protocol.record import decode_record, encode_record

log = logging.getLogger("huginn.worker")

# A process that dies loses at most so much of what it used.
SAVE_NS: Final = 10 * 10**9
_NS_PER_S: Final = 10**9


class UseTable(Protocol):
    """Where it is kept: a keyed table whose calls may block."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def get(self, key: bytes) -> bytes | None: ...


class Meter:
    """What one profile used, over all starts. Used in one event loop. `cpu_ns` is the processor
    time of this process."""

    def __init__(
        self,
        table: UseTable | None,
        profile: ProfileId,
        engine: Engine,
        tiers: Tiers | None,
        clock: Clock,
        *,
        cpu_ns: Callable[[], int],
        blocking: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        self._table = table
        self._key = str(profile).encode("ascii")
        self._engine, self._tiers, self._clock = engine, tiers, clock
        self._cpu_ns = cpu_ns
        self._blocking = blocking
        self._profile = profile
        self._sums = self._kept()
        self._read = self._counters()
        self._read_ns = clock.steady_ns()
        self._saved_ns = self._read_ns
        self._writer: asyncio.Task[None] | None = None
        self._failing = False

    def read(self) -> PhysicalUse:
        """All that was used until now."""
        now_ns, now = self._clock.steady_ns(), self._counters()
        elapsed_ns, self._read_ns = now_ns - self._read_ns, now_ns
        for name, value in now.items():
            self._sums[name] = self._sums.get(name, 0) + value - self._read.get(name, 0)
        self._read = now
        for name, amount in self._resident().items():
            self._sums[name] = self._sums.get(name, 0) + amount * elapsed_ns // _NS_PER_S
        return PhysicalUse(profile=self._profile, used=dict(sorted(self._sums.items())))

    def tick(self) -> None:
        """Something has ended: read, and write it down behind everybody's back now and then."""
        self.read()
        if self._read_ns - self._saved_ns >= SAVE_NS and self._writer is None:
            self._saved_ns = self._read_ns
            self._writer = asyncio.get_running_loop().create_task(self._save())

    async def close(self) -> None:
        """Write down what was used until now."""
        if self._writer is not None:
            await self._writer
        await self._save()

    async def _save(self) -> None:
        use, table = self.read(), self._table
        try:
            if table is not None:
                await self._blocking(lambda: table.put(self._key, encode_record(use)))
            self._failing = False
        except HuginnError as error:
            # All of it is written the next time, which says nothing if it fails too.
            if not self._failing:
                log.warning("what was used is not written down: %s", error)
            self._failing = True
        finally:
            self._writer = None

    def _kept(self) -> dict[str, int]:
        try:
            row = None if self._table is None else self._table.get(self._key)
            return {} if row is None else dict(decode_record(PhysicalUse, row).used)
        except HuginnError as error:
            log.warning("what was used before cannot be read: %s", error)
            return {}

    def _counters(self) -> dict[str, int]:
        """What only grows while the process lives."""
        engine = self._engine
        found = {
            "cpu_ns": self._cpu_ns(),
            "device_ns": engine.busy_ns,
            "prefilled_tokens": engine.prefilled_tokens,
            "decoded_tokens": engine.decoded_tokens,
        }
        for name, counters in self._tier_stats().items():
            found[f"{name}_written_bytes"] = counters["written_bytes"]
            found[f"{name}_read_bytes"] = counters["read_bytes"]
        return found

    def _resident(self) -> dict[str, int]:
        """What lies there now."""
        found = {"device_token_seconds": self._engine.resident_tokens}
        for name, counters in self._tier_stats().items():
            found[f"{name}_byte_seconds"] = counters["bytes"]
        return found

    def _tier_stats(self) -> dict[str, dict[str, int]]:
        return {} if self._tiers is None else self._tiers.stats()
