"""The two ledgers of a worker, and who is told what of them (AUT-6).

The logical one (`charges.py`) is a principal's own, and the operator's; the physical one
(`meter.py`) is the operator's alone, because it says what was warm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from actors.ports import Clock
from actors.room import Call, Room
from actors.worker.charges import ChargeTable, LogicalLedger
from actors.worker.engine import Engine
from actors.worker.jobs import Job
from actors.worker.meter import Meter, UseTable
from actors.worker.tiers import Tiers
from protocol.ids import ProfileId
from protocol.messages import Empty
from protocol.messages.worker import Charge, Charges, PhysicalUse


class LedgerPorts(NamedTuple):
    """Where ledgers are kept (None: in memory alone), and the processor time of this process."""

    charges: ChargeTable | None = None
    use: UseTable | None = None
    cpu_ns: Callable[[], int] = lambda: 0


class Ledgers:
    """Both, told of jobs as they are admitted and end. Used in one event loop."""

    def __init__(
        self,
        ports: LedgerPorts | None,
        profile: ProfileId,
        engine: Engine,
        tiers: Tiers | None,
        clock: Clock,
        *,
        blocking: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        charges, use, cpu_ns = ports or LedgerPorts()
        self.charges = LogicalLedger(charges, blocking=blocking)
        self.meter = Meter(use, profile, engine, tiers, clock, cpu_ns=cpu_ns, blocking=blocking)

    def admitted(self, job: Job) -> None:
        """Charge what is asked: nothing of this depends on what is found warm."""
        principal = job.key.owner.principal
        self.charges.charge(principal, answers=1, prompt_tokens=job.prompt.tokens)

    def ended(self, job: Job) -> None:
        """Charge what was answered, however the job ended."""
        self.charges.charge(job.key.owner.principal, answer_tokens=job.answer.tokens)
        self.meter.tick()

    async def drain(self) -> None:
        """Write down what is not written yet."""
        await self.charges.flush()
        await self.meter.close()


class LedgerOperations(Room):
    """The messages that ask for them, for a room that has `_ledgers`."""

    _ledgers: Ledgers

    async def on_charge(self, call: Call, ask: Empty) -> Charge:
        return self._ledgers.charges.of(call.handle.principal)

    async def on_charges(self, call: Call, ask: Empty) -> Charges:
        self._require_operator(call)
        return self._ledgers.charges.all()

    async def on_use(self, call: Call, ask: Empty) -> PhysicalUse:
        self._require_operator(call)
        return self._ledgers.meter.read()
