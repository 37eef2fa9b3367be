"""What a room needs from the world, as ports that a shell fills in.

A room never imports Ray, aiohttp, a clock, randomness or files: so the same room runs in every
shell, and a test gives it a clock that it can turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class Clock(Protocol):
    """`wall_ns`: nanoseconds since 1970, may step. `steady_ns`: monotonic, for durations."""

    def wall_ns(self) -> int: ...

    def steady_ns(self) -> int: ...


class Entropy(Protocol):
    """`draw(n)`: n unpredictable bytes."""

    def draw(self, size_bytes: int) -> bytes: ...


class Mailbox(Protocol):
    """How one room reaches another by name. Bytes in, bytes out: an Envelope and a Reply.

    `call` raises WorkerFault if the other side dies before it answers, Unavailable if there is no
    such room now: by either, that room does not run, and reads what holds now when it starts. Any
    other FaultError: it may run, and may have taken the message. A message is never taken twice.
    `stream` gives Reply items; closing the iterator stops the producer.
    """

    async def call(self, room: str, message: bytes) -> bytes: ...

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]: ...


class RoomEntry(Protocol):
    """A room as a shell sees it."""

    name: str

    async def receive(self, message: bytes) -> bytes: ...

    def stream(self, message: bytes) -> AsyncIterator[bytes]: ...

    async def drain(self) -> None:
        """Finish or fail what is running, flush what is durable, stop."""
