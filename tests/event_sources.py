"""Sources of events for tests: calls, a keeper of sources that restarts, and a feed to direct."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from actors.events.ports import Hole, Remote, RemoteFeed, RemotePage, SourceKeys
from actors.events.retention import Retention, no_session
from actors.events.sources import EventSources
from actors.room import Call
from protocol import cbor
from protocol.caveats import Scope
from protocol.errors import FeedLost
from protocol.event_log import Entry
from protocol.handle import Handle
from protocol.ids import CapabilityId, SourceId
from protocol.messages.events import (
    AddSource,
    Appended,
    AppendEvents,
    EventPage,
    ListSources,
    NewEvent,
    ReadEvents,
    RemoveSource,
    SourceRow,
)
from protocol.resource import Resource, ResourceKind, Right
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.events_rooms import DerivedKeys
from tests.worker_rooms import CountingEntropy, HandClock

NAMESPACE = "team"
EVERYTHING = Retention(events_max=None, age_ns_max=None, unseen_max=None)
RIGHTS = (Right.EMIT, Right.OBSERVE, Right.ERASE)


def call(
    namespace: str = NAMESPACE, rights: Iterable[Right] = RIGHTS, *, exp_ns: int = 2**62
) -> Call:
    """A call as the door would have admitted it."""
    handle = Handle(
        lineage=(CapabilityId.of(b"cap"),),
        root=b"r" * 32,
        principal=b"p" * 32,
        audience=b"a" * 32,
        resource=Resource(kind=ResourceKind.NAMESPACE, name=namespace),
        rights=frozenset(rights),
        scope=Scope(),
        nbf_ns=0,
        exp_ns=exp_ns,
    )
    return Call(handle=handle, envelope=SimpleNamespace(request_id="q"))  # type: ignore[arg-type]


def event(subject: str = "1", kind: str = "MergeSucceeded", **body: cbor.Value) -> NewEvent:
    if not body and kind == "MergeSucceeded":
        body = {"merge_commit": "9f3c"}
    return NewEvent(kind=kind, subject=subject, body=cbor.encode(dict(body)))


@dataclass
class Keeper:
    """`EventSources` over logs in memory, which keep everything unless told otherwise. `restart` is
    a new one over what is kept."""

    feed: RemoteFeed | None = None
    retention: Retention = EVERYTHING
    floor: Callable[[SourceId], int | None] = no_session
    keys: SourceKeys = field(default_factory=DerivedKeys)

    def __post_init__(self) -> None:
        self.clock = HandClock()
        self.entropy = CountingEntropy()
        self.tables = MemoryTables()
        self.logs = MemoryEventLogs(self.tables)
        self.sources = self._made()

    def _made(self) -> EventSources:
        return EventSources(
            self.logs,
            self.tables,
            self.keys,
            self.clock,
            self.entropy,
            feed=self.feed,
            floor=self.floor,
            retention=self.retention,
        )

    async def __aenter__(self) -> Keeper:
        await self.sources.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.sources.drain()

    async def restart(self) -> None:
        await self.sources.drain()
        self.sources = self._made()
        await self.sources.start()

    async def add(self, name: str = "builds", namespace: str = NAMESPACE, **more: Any) -> SourceRow:
        ask = AddSource(namespace=namespace, name=name, **more)
        return await self.sources.add(call(namespace), ask)

    async def remove(self, name: str = "builds") -> None:
        await self.sources.remove(call(), RemoveSource(namespace=NAMESPACE, name=name))

    async def emit(self, *subjects: str, name: str = "builds", key: str | None = None) -> Appended:
        events = [event(subject) for subject in subjects]
        ask = AppendEvents(namespace=NAMESPACE, source=name, events=events, key=key)
        return await self.sources.append(call(), ask)

    async def read(self, name: str = "builds", after: int = 0, limit: int = 100) -> EventPage:
        ask = ReadEvents(namespace=NAMESPACE, source=name, after=after, limit=limit)
        return await self.sources.read(call(), ask)

    async def row(self, name: str = "builds") -> SourceRow:
        found = await self.sources.list(call(), ListSources(namespace=NAMESPACE))
        return next(row for row in found.sources if row.name == name)

    async def until(
        self, wanted: Callable[[SourceRow], bool], name: str = "builds", seconds: float = 60
    ) -> SourceRow:
        """The source's row, once it is as wanted."""
        async with asyncio.timeout(seconds):
            while not wanted(row := await self.row(name)):
                await asyncio.sleep(0.005)
        return row


@dataclass
class ScriptedFeed:
    """A far installation with `entries` of one source, of which it can tell less, more or other.

    `kept_from`: numbers below are kept no longer. `page_as`: what a page says in place of the
    entries. `fails`: what the next asks raise, one each. `streams`: whether it has a stream.
    """

    entries: list[bytes] = field(default_factory=list)
    kept_from: int = 1
    page_as: Callable[[int, list[bytes]], list[bytes]] | None = None
    fails: list[Exception] = field(default_factory=list)
    streams: Exception | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.pushed: asyncio.Queue[bytes | Hole | Exception] = asyncio.Queue()

    def hold(self, entries: Sequence[Entry]) -> None:
        self.entries = [entry.body for entry in entries]

    def check(self, remote: Remote) -> None: ...

    async def page(self, remote: Remote, after: int, limit: int, wait_ns: int) -> RemotePage:
        self.asked.append(("page", after))
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        first = max(after + 1, self.kept_from)
        entries = self.entries[first - 1 : first - 1 + limit]
        if self.page_as is not None:
            entries = self.page_as(after, entries)
        elif wait_ns and not entries:
            await asyncio.sleep(0.01)
        hole = Hole(after + 1, first - 1) if first > after + 1 else None
        return RemotePage(entries, len(self.entries), hole)

    async def stream(self, remote: Remote, after: int) -> AsyncGenerator[bytes | Hole, None]:
        self.asked.append(("stream", after))
        if self.streams is not None:
            raise self.streams
        while True:
            item = await self.pushed.get()
            if isinstance(item, Exception):
                raise item
            yield item

    async def close(self) -> None:
        self.closed = True


LOST = FeedLost("the line is cut")
