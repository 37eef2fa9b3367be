"""Answers as they come: the worker's streams of one request, merged, and what they add up to.

Each choice has a task that reads its stream into one bounded queue: a client that reads slowly
slows the worker's stream down, and memory does not grow. Leaving the block ends every task and
closes every stream, whatever the reason: an answer nobody waits for is not computed (H1, H5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Self

from actors.gateway.caller import Caller
from actors.gateway.turns import packed_count
from protocol.errors import FaultError, HuginnError, Unavailable, WorkerFault
from protocol.messages.events import Finish, TurnUsage
from protocol.messages.worker import Generate, Item, Receipt, TokenLogprob

log = logging.getLogger("huginn.gateway")

Items = Callable[[Generate], AsyncGenerator[Item, None]]
_WAITING_MAX: Final = 64
_RESTART_SECONDS_MAX: Final = 30.0


class Event(NamedTuple):
    """An item of a choice, by its number, or what ended its stream."""

    choice: int
    outcome: Item | HuginnError


class ToldAgain(Item):
    """The end of an answer that was given before, with the `usage` that was told of it then."""

    usage: TurnUsage | None = None


class Answers:
    """The answers of `jobs`, as one stream of events. An async context manager.

    `items` gives the items of a job, where they are not simply those of the worker `room`.
    """

    def __init__(
        self, caller: Caller, room: str, jobs: list[Generate], items: Items | None = None
    ) -> None:
        self._caller = caller
        self._room = room
        self._jobs = jobs
        self._items = items
        self._events: asyncio.Queue[Event] = asyncio.Queue(_WAITING_MAX)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._read(index, job)) for index, job in enumerate(self._jobs)
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def next(self, timeout_s: float | None = None) -> Event | None:
        """The next event, or None if none came within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._events.get()
        except TimeoutError:
            return None

    async def _read(self, index: int, job: Generate) -> None:
        outcome: HuginnError
        try:
            try:
                if await self._relay(index, job):
                    return
            except _NothingCame:
                # The worker was gone before it could take the job: another one can, once.
                await self._caller.readiness.wait(_RESTART_SECONDS_MAX)
                if await self._relay(index, job):
                    return
            outcome = WorkerFault("the worker's stream ended before the answer did: try again")
        except _NothingCame as lost:
            outcome = lost.fault
        except HuginnError as error:
            outcome = error
        except Exception:
            log.exception("a fault while an answer was read")
            outcome = FaultError("the gateway failed while it read the answer")
        await self._events.put(Event(index, outcome))

    async def _relay(self, index: int, job: Generate) -> bool:
        """Pass the job's items on; whether the last of them came. Raises _NothingCame for a worker
        that was gone before the first item, and what the worker answers."""
        came = False
        if self._items is None:
            items = self._caller.stream(self._room, "generate", job, Item)
        else:
            items = self._items(job)
        try:
            async with aclosing(items):
                async for item in items:
                    came = True
                    await self._events.put(Event(index, item))
                    if item.kind == "end":
                        return True
        except (WorkerFault, Unavailable) as error:
            if came and isinstance(error, Unavailable):
                # Of another room, that had to keep the answer: the worker gave it.
                raise
            fault = WorkerFault(error.message)
            if came or self._caller.readiness.is_ready:
                raise fault from error
            raise _NothingCame(fault) from error
        return False


class _NothingCame(Exception):
    """The worker was gone before it gave anything."""

    def __init__(self, fault: WorkerFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(slots=True)
class Choice:
    """What one choice has come to so far. `ids` are packed, a piece for each delta."""

    text: list[str] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None
    receipt: Receipt | None = None
    usage: TurnUsage | None = None

    def take(self, outcome: Item | HuginnError) -> Item:
        """Add an item. Raises the error that it is, or WorkerFault for an answer cut off."""
        if isinstance(outcome, HuginnError):
            raise outcome
        if outcome.kind == "delta":
            self.text.append(outcome.text or "")
            self.ids.append(outcome.ids or b"")
            self.tokens += packed_count(outcome.ids or b"")
            self.logprobs.extend(outcome.logprobs or [])
        elif outcome.kind == "end":
            if outcome.finish == "cancelled":
                raise WorkerFault("the answer was cancelled before it was complete: try again")
            # Out of time is out of room, for clients that know two reasons to stop.
            self.finish = "stop" if outcome.finish == "stop" else "length"
            self.receipt = outcome.receipt
            self.usage = outcome.usage if isinstance(outcome, ToldAgain) else None
        return outcome

    @property
    def completion_tokens(self) -> int:
        """What the worker counted, or was told before, or the ids that were delivered."""
        if self.usage is not None:
            return self.usage.output_tokens
        return self.tokens if self.receipt is None else self.receipt.completion_tokens

    @property
    def reused_tokens(self) -> int:
        """How many of its prompt's tokens were reused, for those who may know (AUT-7)."""
        if self.usage is not None:
            return self.usage.reused_tokens
        return 0 if self.receipt is None else self.receipt.reused_tokens


async def collect(answers: Answers, choices: int) -> list[Choice]:
    """Every choice, complete. Raises the first error of any of them."""
    done = [Choice() for _ in range(choices)]
    while any(choice.finish is None for choice in done):
        event = await answers.next()
        if event is not None:
            done[event.choice].take(event.outcome)
    return done
