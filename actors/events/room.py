"""The events room: what happened since you last looked.

It owns the logs of sources, the sessions and their turns, all in one file, so that what a turn is
told and that it was told are one transaction. It runs no model and causes no turn: events wait
until somebody asks (EVT-13). Blocks are kept by the ropes room, in the caller's name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

from actors.events.beginnings import Beginnings
from actors.events.book import Book
from actors.events.collection import Collector
from actors.events.context import forget_decoded
from actors.events.conversations import Conversations
from actors.events.endings import Endings
from actors.events.erasure import erase_sessions
from actors.events.ports import RemoteFeed, SourceKeys
from actors.events.retention import Retention
from actors.events.sessions import SessionLimits, Sessions
from actors.events.sources import EventSources
from actors.room import Call, Room, World
from protocol.ids import SourceId
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.messages.erasure import Erase
from protocol.resource import Resource, ResourceKind, Right
from protocol.tokenizer import Tokenizer
from store.events import EventLogs
from store.tables import Tables


class EventsRoom(Room):
    """Owns `logs` and `tables`, which lie in one file; closes them when drained. `tokenizer` counts
    what reminders cost; `keys` makes the keys of local sources, `feed` reads remote ones."""

    operations = messages.OPERATIONS

    def __init__(
        self,
        world: World,
        logs: EventLogs,
        tables: Tables,
        *,
        tokenizer: Tokenizer,
        keys: SourceKeys,
        feed: RemoteFeed | None = None,
        limits: SessionLimits | None = None,
        retention: Retention | None = None,
    ) -> None:
        super().__init__("events", world)
        limits = limits or SessionLimits()
        self._logs = logs
        self._tables = tables
        self._counters: Counter[str] = Counter()
        self._sources = EventSources(
            logs,
            tables,
            keys,
            world.clock,
            world.entropy,
            feed=feed,
            floor=self._floor,
            retention=retention,
        )
        self._book = Book(tables)
        self._sessions = Sessions(
            self._book,
            self._sources,
            logs,
            tokenizer,
            clock=world.clock,
            entropy=world.entropy,
            limits=limits,
        )
        conversations = Conversations(self.ask_for)
        self._beginnings = Beginnings(
            self._sessions,
            conversations,
            self._counters,
            clock=world.clock,
            entropy=world.entropy,
        )
        self._endings = Endings(
            self._book, conversations, tokenizer, clock=world.clock, lease_ns=limits.lease_ns
        )
        self._collector = Collector(self._sessions, self._counters, world.clock)

    async def start(self) -> None:
        await super().start()
        await self._sources.start()

    async def settled(self) -> None:
        """Wait until no step of a session runs, whoever began it."""
        await self._collector.ended()
        await self._book.ended()

    async def drain(self) -> None:
        await self._sources.drain()
        await self.settled()
        self._logs.close()
        self._tables.close()

    async def erase(self, ask: Erase) -> dict[str, int]:
        counts = await erase_sessions(self._book, self._tables, ask)
        if ask.objects is None:
            counts |= await self._sources.erase(ask.takes)
            forget_decoded()
        await asyncio.to_thread(self._tables.scrub)
        return counts

    def _floor(self, source: SourceId) -> int | None:
        known = self._sources.known(source)
        if known is None:
            return None
        return self._sessions.floor(source, known.namespace, known.name)

    # -- sources -----------------------------------------------------------------------------

    async def on_add_source(self, call: Call, ask: messages.AddSource) -> messages.SourceRow:
        return await self._sources.add(call, ask)

    async def on_remove_source(self, call: Call, ask: messages.RemoveSource) -> Empty:
        return await self._sources.remove(call, ask)

    async def on_sources(self, call: Call, ask: messages.ListSources) -> messages.Sources:
        return await self._sources.list(call, ask)

    async def on_append(self, call: Call, ask: messages.AppendEvents) -> messages.Appended:
        return await self._sources.append(call, ask)

    async def on_read(self, call: Call, ask: messages.ReadEvents) -> messages.EventPage:
        return await self._sources.read(call, ask)

    def on_follow(
        self, call: Call, ask: messages.Follow
    ) -> AsyncGenerator[messages.StreamItem, None]:
        return self._sources.follow(call, ask)

    async def on_register_kind(self, call: Call, ask: messages.RegisterKind) -> messages.KindRow:
        return await self._sources.register_kind(call, ask)

    async def on_kinds(self, call: Call, ask: messages.ListSources) -> messages.Kinds:
        return await self._sources.kinds(call, ask)

    # -- sessions ----------------------------------------------------------------------------

    async def on_open_session(self, call: Call, ask: messages.OpenSession) -> messages.SessionRow:
        self._collector.look()
        return await self._sessions.open(call, ask)

    async def on_sessions(self, call: Call, ask: messages.ListSessions) -> messages.Sessions:
        return self._sessions.list(call, ask)

    async def on_turns(self, call: Call, ask: messages.AskSession) -> messages.Turns:
        return self._sessions.turns(call, ask)

    async def on_remove_session(self, call: Call, ask: messages.AskSession) -> Empty:
        return await self._sessions.remove(call, ask)

    async def on_preview(self, call: Call, ask: messages.Preview) -> messages.Previewed:
        return self._sessions.preview(call, ask)

    # -- turns -------------------------------------------------------------------------------

    async def on_begin_turn(self, call: Call, ask: messages.BeginTurn) -> messages.BegunTurn:
        self._collector.look()
        return await self._beginnings.begin(call, ask)

    async def on_renew_turn(self, call: Call, ask: messages.RenewTurn) -> messages.Renewed:
        return await self._endings.renew(call, ask)

    async def on_finish_turn(self, call: Call, ask: messages.FinishTurn) -> messages.FinishedTurn:
        return await self._endings.finish(call, ask)

    async def on_abandon_turn(self, call: Call, ask: messages.AbandonTurn) -> Empty:
        return await self._endings.abandon(call, ask)

    async def on_response(self, call: Call, ask: messages.AskResponse) -> messages.ResponseRow:
        return self._sessions.response(call, ask)

    async def on_forget_response(self, call: Call, ask: messages.AskResponse) -> Empty:
        return await self._sessions.forget_response(call, ask)

    # -- operating ---------------------------------------------------------------------------

    async def on_status(self, call: Call, ask: Empty) -> messages.EventsStatus:
        call.handle.require(Right.OPERATE, Resource(kind=ResourceKind.SERVICE, name="events"))
        return messages.EventsStatus(
            sources=len(self._sources),
            sessions=len(self._sessions),
            subscribers=self._sources.subscribers,
            counters={**self._sources.counters, **self._counters},
        )
