"""What a room that executes tells muninn: evidence, in batches, off everybody's path.

An operation puts down what was executed and goes on: nothing waits for the memo, and a memo that is
down, slow, full or broken costs evidence and never an answer (DRV-5). Naming, signing and sending
happen in one task of the room's event loop, which ends when there is nothing left to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from actors.room import Room
from protocol.derivation import Derivation, attest
from protocol.messages.muninn import Execution, Origin, Report, Results

log = logging.getLogger("huginn.reporting")

MUNINN: Final = "muninn"
# Executions in one report, and how long an incomplete one waits for more.
BATCH_MAX: Final = 64
BATCH_SECONDS: Final = 0.2
# A few cold prompts' advances; what waits holds ids and counts, some kilobytes each at most.
WAITING_MAX: Final = 4096
# What is not said again in this process, by domain and result.
SAID_MAX: Final = 16_384
REPLY_SECONDS_MAX: Final = 5.0
DRAIN_SECONDS_MAX: Final = 1.0
_WELCOME: Final = frozenset(("inserted", "already-present", "equal"))


class _Executed(NamedTuple):
    domain: str
    result: Hashable
    derive: Callable[[], Derivation]
    measurements: Mapping[str, int]
    origin: Origin | None

    @property
    def key(self) -> tuple[str, Hashable]:
        return self.domain, self.result


class EvidenceQueue:
    """Evidence of what `room` executes with the code that `engine_build` names.

    A queue of an installation without a muninn room takes nothing. `dropped` counts executions
    that were never sent because others came faster than they could be, `lost` those whose report
    failed.
    """

    def __init__(self, room: Room, engine_build: str, *, waiting_max: int = WAITING_MAX) -> None:
        self._room = room
        self._build = engine_build
        self._waiting_max = waiting_max
        self._closed = MUNINN not in room.world.room_to_key
        self._waiting: deque[_Executed] = deque()
        self._said: OrderedDict[tuple[str, Hashable], None] = OrderedDict()
        self._reporting: set[str] = set()  # the domains of the batch that is on its way
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self.dropped = 0
        self.lost = 0

    def __len__(self) -> int:
        """How many executions wait."""
        return len(self._waiting)

    def put(
        self,
        domain: str,
        result: Hashable,
        derive: Callable[[], Derivation],
        measurements: Mapping[str, int],
        origin: Origin | None = None,
    ) -> None:
        """Report, later, that `derive()` was executed for `domain` and led to `result`: an id, or
        what else tells an execution and its result from others. `origin`: where its inputs can be
        had.

        Of equal results in a domain only the first is reported. Never waits and never raises;
        `derive` is called in the event loop, later or not at all.
        """
        executed = _Executed(domain, result, derive, measurements, origin)
        if self._closed or executed.key in self._said:
            return
        self._said[executed.key] = None
        if len(self._said) > SAID_MAX:
            self._said.popitem(last=False)
        if len(self._waiting) >= self._waiting_max:
            self._forget(self._waiting.popleft())
            self.dropped += 1
        self._waiting.append(executed)
        if len(self._waiting) >= BATCH_MAX:
            self._full.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def forget(self, domains: Collection[str]) -> None:
        """Report nothing more of `domains` that was put down until now; returns when what was on
        its way has arrived, or was lost."""
        self._waiting = deque(each for each in self._waiting if each.domain not in domains)
        for key in [key for key in self._said if key[0] in domains]:
            del self._said[key]
        if self._reporting & set(domains):
            await self._arrived.wait()

    async def drain(self) -> None:
        """Take nothing more, and send what waits, for at most `DRAIN_SECONDS_MAX`."""
        self._closed = True
        self._full.set()
        sender = self._sender
        if sender is None:
            return
        await asyncio.wait({sender}, timeout=DRAIN_SECONDS_MAX)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        if self._waiting:
            log.info("%d executions go unreported: no time is left", len(self._waiting))
            self.lost += len(self._waiting)
            self._waiting.clear()

    async def _send(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._full.wait()
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            if len(self._waiting) < BATCH_MAX and not self._closed:
                self._full.clear()
            self._reporting = {executed.domain for executed in batch}
            self._arrived.clear()
            try:
                await self._report(batch)
            except Exception as error:
                # Whatever it is, it is the memo's trouble, or ours; the caller has its answer.
                self.lost += len(batch)
                for executed in batch:
                    self._forget(executed)
                log.info("%d executions go unremembered: %s", len(batch), error or repr(error))
            finally:
                self._reporting = set()
                self._arrived.set()

    async def _report(self, batch: list[_Executed]) -> None:
        entries = []
        for executed in batch:
            entries.append(self._execution(executed))
            await asyncio.sleep(0)  # a signature takes as long as an answer's token may wait
        ask = Report(entries=entries)
        async with asyncio.timeout(REPLY_SECONDS_MAX):
            said = await self._room.ask_as_self(MUNINN, "report", ask, Results)
        odd = [each for each in said.results if each.result not in _WELCOME]
        if odd:
            log.info(
                "%d of %d reported: %s, %s", len(odd), len(batch), odd[0].result, odd[0].reason
            )

    def _execution(self, executed: _Executed) -> Execution:
        derivation = executed.derive()
        return Execution(
            outcome="complete",
            invocation=derivation.invocation,
            evidence=attest(
                self._room.world.signer,
                derivation,
                engine_build=self._build,
                authority_epoch=self._room.epoch,
                domain=executed.domain,
                measurements=executed.measurements,
            ),
            origin=executed.origin,
        )

    def _forget(self, executed: _Executed) -> None:
        self._said.pop(executed.key, None)
