"""Ground on which every call may be the last: for tests of a process that dies anywhere.

A bomb goes off at one call: before it did anything, half way through, or after it did everything.
From then on nobody of that life does anything more, whatever it was about to do, also when the next
life has begun: what wraps a store or a mailbox belongs to the life in which it was made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, TypeVar

from protocol.ids import SourceId
from store.events import LogRange, StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryKeyedTable, MemoryLogTable, MemoryTables
from store.tables import Change
from tests.rooms import Post

T = TypeVar("T")


class Death(Exception):
    """The process is gone: nothing that it does from now on happens."""


def nothing() -> None:
    """What a call does of which only the moment counts."""


class Bomb:
    """Goes off at the `at`-th call from when it is set; `after` the call has done its work. With
    `instead` nobody dies: that is done before the call.

    `witness` is told of each death at its moment, while everything lies as it does.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False
        self.dead = False
        self.life = 0
        self.witness: Callable[[], None] = nothing
        self._instead: Callable[[], object] | None = None

    def set(self, at: int, *, after: bool, instead: Callable[[], object] | None = None) -> None:
        self.left, self.after, self._instead = at, after, instead

    def clear(self) -> bool:
        """Whether it went off."""
        gone = self.left == 0
        self.left, self._instead = None, None
        return gone

    def die(self) -> None:
        """The life that is now ends."""
        if not self.dead:
            self.witness()
            self.dead = True

    def rise(self) -> None:
        """The next life begins."""
        self.life += 1
        self.dead = False

    def call(self, life: int, work: Callable[[], T], *, half: Callable[[], object] = nothing) -> T:
        """What `work` gives, in the life `life`; `half` is what is left of it where it was begun
        and not ended. Raises Death, now or from an earlier one on."""
        if not self._is_last(life):
            return work()
        try:
            if self.after:
                work()
            else:
                half()
        finally:
            self.die()
        raise Death

    async def wait(self, life: int, work: Callable[[], Awaitable[T]]) -> T:
        """As `call`, of something that takes its time: others go on until it has ended."""
        if not self._is_last(life):
            return await work()
        try:
            if self.after:
                await work()
        finally:
            self.die()
        raise Death

    def _is_last(self, life: int) -> bool:
        if self.dead or life != self.life:
            raise Death
        if not self.left:
            # Not set; or it has gone off, and this is a part of the last call's work.
            return False
        self.left -= 1
        if not self.left and self._instead is not None:
            self._instead()
            return False
        return not self.left


class MinedTables:
    """Tables of which every change may be the last."""

    def __init__(self, tables: MemoryTables, bomb: Bomb) -> None:
        self._tables = tables
        self._bomb, self._life = bomb, bomb.life

    def keyed(self, name: str) -> MemoryKeyedTable:
        return MemoryKeyedTable(self, name)  # type: ignore[arg-type]

    def log(self, name: str) -> MemoryLogTable:
        return MemoryLogTable(self, name)  # type: ignore[arg-type]

    def apply(self, changes: Sequence[Change]) -> list[int]:
        return self._bomb.call(self._life, lambda: self._tables.apply(changes))

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        return self._bomb.call(self._life, lambda: self._tables.apply_soon(changes))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


class MinedLogs:
    """Event logs whose every call may be the last."""

    def __init__(self, logs: MemoryEventLogs, bomb: Bomb) -> None:
        self._logs = logs
        self._bomb, self._life = bomb, bomb.life

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        return self._bomb.call(self._life, lambda: self._logs.append_soon(entries, changes))

    def range(self, source: SourceId) -> LogRange:
        return self._bomb.call(self._life, lambda: self._logs.range(source))

    def read(self, *args: Any, **kwargs: Any) -> list[StoredEvent]:
        return self._bomb.call(self._life, lambda: self._logs.read(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs, name)


class MinedPost:
    """A mailbox in which every message may be the last: it never arrives, or its answer does not.
    What is asked of the events room comes from a client, and is no call of the house's own.
    `heard` is what the worker was asked in calls."""

    def __init__(self, post: Post, bomb: Bomb) -> None:
        self.heard: list[bytes] = []
        self._rooms = post.rooms
        self._bomb, self._life = bomb, bomb.life

    async def call(self, room: str, message: bytes) -> bytes:
        if room == "events":
            return await self._rooms[room].receive(message)
        if room == "worker":
            self.heard.append(message)
        return await self._bomb.wait(self._life, lambda: self._rooms[room].receive(message))

    async def stream(self, room: str, message: bytes) -> AsyncGenerator[bytes, None]:
        self._bomb.call(self._life, nothing)
        items: Any = self._rooms[room].stream(message)
        async with aclosing(items):
            async for item in items:
                yield item
                self._bomb.call(self._life, nothing)
