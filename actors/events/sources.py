"""Sources of events: what the events room does with logs, one method for each operation.

A source lies in a namespace, and what `call` may do there decides everything: what does not exist
and what lies outside the caller's view are one answer. Local sources are written here; remote ones
are followed; both are read, merged and kept in the same way, so an installation with one source is
nothing special. Entries are passed on as they were signed: whoever gets one can verify it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

from actors.events.aggregator import Aggregator, Subscription
from actors.events.kinds import KindRegistry, may
from actors.events.ports import KEY_PREFIX, RemoteFeed, SourceKeys
from actors.events.registry import KnownSource, SourceRegistry, label
from actors.events.remote import Follower
from actors.events.retention import Retention, expired, no_session
from actors.events.scope import ScopedSource
from actors.events.writer import Draft, LogWriter
from actors.ports import Clock, Entropy
from actors.room import Call
from protocol import cbor
from protocol.errors import Conflict, ContentError, FaultError, NotVisible
from protocol.events import source_id
from protocol.ids import SourceId
from protocol.limits import EVENT_BYTES_MAX
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.messages.events import EVENTS_MAX
from protocol.record import encode_record
from protocol.resource import Right, path_covers
from store.events import EventLogs
from store.tables import Tables

log = logging.getLogger("huginn.events")

State = Literal["local", "following", "disconnected", "refused", "forked"]

# Entries of one page, in bytes; the first goes whatever its size.
PAGE_BYTES: Final = 8 * 1024 * 1024
KEY_CHARS_MAX: Final = 255
SWEEP_SECONDS: Final = 60.0
# How long a follower that is never idle reads on after its handle's end.
_GRACE_NS: Final = 10 * 10**9
_KEY_NAME_BYTES: Final = 16
_NS_PER_S: Final = 10**9


class EventSources:
    """Owns `logs` and the tables of sources and kinds beside them in `tables`.

    `keys` makes the keys of local sources, `feed` reads remote ones (None: there are none here).
    `floor` gives the lowest mark that a live session has in a source, None where none reads it.
    """

    def __init__(
        self,
        logs: EventLogs,
        tables: Tables,
        keys: SourceKeys,
        clock: Clock,
        entropy: Entropy,
        *,
        feed: RemoteFeed | None = None,
        floor: Callable[[SourceId], int | None] = no_session,
        retention: Retention | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._logs = logs
        self._keys = keys
        self._clock = clock
        self._entropy = entropy
        self._feed = feed
        self._floor = floor
        self._retention = retention or Retention()
        self._pause = pause
        self._registry = SourceRegistry(tables, logs)
        self._kinds = KindRegistry(tables)
        self._aggregator = Aggregator(logs)
        self._writer = LogWriter(logs, tables, clock, self._aggregator.publish)
        self._followers: dict[SourceId, Follower] = {}
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Opens every source there is, and begins to follow the remote ones."""
        for source in self._registry.finish_removals(self._keys):
            self._aggregator.forget(source)
        for row in self._registry.all():
            self._open(row)
        self._sweeper = asyncio.create_task(self._keep_sweeping(), name="sweep events")

    async def drain(self) -> None:
        """Stops following, and finishes what was asked for. The logs are the caller's to close."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for follower in self._followers.values():
            await follower.stop()
        if self._feed is not None:
            await self._feed.close()
        await self._writer.drain()

    # -- for the rest of the room ------------------------------------------------------------

    def __len__(self) -> int:
        """How many sources there are."""
        return len(self._registry)

    @property
    def subscribers(self) -> int:
        """How many read the stream now."""
        return self._aggregator.readers

    @property
    def counters(self) -> dict[str, int]:
        """The sums of the stream's accounts (`aggregator`); they never reset."""
        return {**self._aggregator.counters, "pending": self._aggregator.pending}

    def known(self, source: SourceId) -> KnownSource | None:
        """The source with this key, whoever asks."""
        return self._registry.by_id(source)

    def in_scope(
        self, call: Call, namespace: str, names: Sequence[str] | None
    ) -> list[ScopedSource]:
        """As `Scopes.in_scope` says."""
        return self._registry.in_scope(call, namespace, names)

    # -- sources -----------------------------------------------------------------------------

    async def add(self, call: Call, ask: messages.AddSource) -> messages.SourceRow:
        if not may(call, Right.EMIT, ask.namespace):
            raise NotVisible("no such namespace in this view")
        wanted = (ask.url, ask.public_key, ask.api_key_file)
        there = self._registry.at(ask.namespace, ask.name)
        if there is None:
            there = self._local(ask) if ask.url is None else self._remote(ask, ask.url)
            self._registry.check_free(call, there)
            self._registry.keep(there)
            self._open(there)
        given_key = None if there.is_local else there.public_key
        if wanted != (there.url, given_key, there.api_key_file):
            raise Conflict(
                f"{ask.namespace} has another source called {ask.name}: take another name, or "
                "remove that one first"
            )
        return self._row(there)

    async def remove(self, call: Call, ask: messages.RemoveSource) -> Empty:
        await self._forget(self._registry.find(call, Right.ERASE, ask.namespace, ask.name))
        return Empty()

    async def erase(self, takes: Callable[[str], bool]) -> dict[str, int]:
        """Erase the sources, and the kinds, of the namespaces that `takes` says, and that there
        ever were such; how many went."""
        gone = [row for row in self._registry.all() if takes(row.namespace)]
        for row in gone:
            await self._forget(row)
        for source in self._registry.finish_removals(self._keys):
            self._aggregator.forget(source)
        for source in self._registry.drop_removed(takes):
            self._writer.forget(source)
        return {"sources": len(gone), "kinds": self._kinds.erase(takes)}

    async def _forget(self, row: KnownSource) -> None:
        if (follower := self._followers.get(row.id)) is not None:
            await follower.stop()
        await self._writer.close(row.id)
        await asyncio.to_thread(self._writer.forget, row.id)
        if self._registry.by_id(row.id) is row:
            self._followers.pop(row.id, None)
            # The row first: without its key a source that is still there could sign nothing more.
            self._registry.forget(row, self._logs.range(row.id).head)
            if row.key_name is not None:
                self._keys.destroy(row.key_name)
            self._aggregator.forget(row.id)
            await asyncio.to_thread(self._logs.drop, row.id)

    async def list(self, call: Call, ask: messages.ListSources) -> messages.Sources:
        rows = self._registry.visible(call, ask.namespace)
        return messages.Sources(sources=[self._row(row) for row in rows])

    # -- events ------------------------------------------------------------------------------

    async def append(self, call: Call, ask: messages.AppendEvents) -> messages.Appended:
        row = self._registry.find(call, Right.EMIT, ask.namespace, ask.source)
        if not row.is_local:
            raise ContentError(f"{ask.source} is followed from {row.url}: only its owner appends")
        if not 1 <= len(ask.events) <= EVENTS_MAX:
            raise ContentError(f"an append has 1 to {EVENTS_MAX} events, not {len(ask.events)}")
        if ask.key is not None and not 1 <= len(ask.key) <= KEY_CHARS_MAX:
            raise ContentError(f"a key is 1 to {KEY_CHARS_MAX} characters")
        drafts = [self._draft(call, event) for event in ask.events]
        asked = hashlib.sha256()
        for event in ask.events if ask.key is not None else ():
            asked.update(hashlib.sha256(encode_record(event)).digest())
        return await self._writer.append(row.id, drafts, ask.key, asked.digest())

    async def read(self, call: Call, ask: messages.ReadEvents) -> messages.EventPage:
        row = self._registry.find(call, Right.OBSERVE, ask.namespace, ask.source)
        if not 1 <= ask.limit <= EVENTS_MAX:
            raise ContentError(f"limit goes from 1 to {EVENTS_MAX}", param="limit")
        kept = self._logs.range(row.id)
        _check_cursor(ask.source, ask.after, kept.head)
        entries = self._logs.read(row.id, ask.after, ask.limit, bytes_max=PAGE_BYTES)
        first = entries[0].seq if entries else kept.head + 1
        gap = None
        if first > ask.after + 1:
            count = first - 1 - ask.after
            gap = messages.Gap(
                source=row.id, first=ask.after + 1, last=first - 1, count=count, cause="retention"
            )
        return messages.EventPage(
            entries=[entry.body for entry in entries], head=kept.head, gap=gap
        )

    async def follow(
        self, call: Call, ask: messages.Follow
    ) -> AsyncGenerator[messages.StreamItem, None]:
        """Ends with its last source, and when the caller's handle does, so that who goes on asking
        is checked anew; from the marks that it has, nothing is missed."""
        reader = self._reader(call, ask)
        try:
            while True:
                delivery = reader.take()
                left_ns = call.handle.exp_ns - self._clock.wall_ns()
                if delivery is None:
                    if left_ns <= 0:
                        return
                    try:
                        async with asyncio.timeout(left_ns / _NS_PER_S):
                            delivery = await reader.next()
                    except TimeoutError:
                        return
                    if delivery is None:
                        return
                body = None if delivery.entry is None else delivery.entry.body
                yield messages.StreamItem(source=delivery.label, entry=body, gap=delivery.gap)
                if left_ns < -_GRACE_NS:
                    return
        finally:
            reader.close()

    # -- kinds -------------------------------------------------------------------------------

    async def register_kind(self, call: Call, ask: messages.RegisterKind) -> messages.KindRow:
        return await self._kinds.register(call, ask)

    async def kinds(self, call: Call, ask: messages.ListSources) -> messages.Kinds:
        return await self._kinds.list(call, ask)

    # -- retention ---------------------------------------------------------------------------

    async def sweep(self) -> int:
        """Trims every log as retention allows; how many entries went."""
        gone = 0
        for row in self._registry.all():
            through = expired(
                self._logs,
                row.id,
                self._retention,
                now_ns=self._clock.wall_ns(),
                floor=self._floor,
            )
            if through >= self._logs.range(row.id).first:
                gone += await asyncio.to_thread(self._logs.trim, row.id, through)
            # Others are served between two sources.
            await asyncio.sleep(0)
        return gone

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self.sweep()
            except FaultError as error:
                log.warning("events are kept longer than configured: %s", error.message)
            await self._pause(SWEEP_SECONDS)

    # -- inside ------------------------------------------------------------------------------

    def _local(self, ask: messages.AddSource) -> KnownSource:
        if ask.public_key is not None or ask.api_key_file is not None:
            raise ContentError("public_key and api_key_file go with url, for a remote source")
        # A key of its own each time: a removed source's numbers are never signed again.
        key_name = f"{KEY_PREFIX}{self._entropy.draw(_KEY_NAME_BYTES).hex()}"
        public = self._keys.signer(key_name).public
        return KnownSource(
            namespace=ask.namespace,
            name=ask.name,
            id=source_id(public),
            public_key=public,
            key_name=key_name,
        )

    def _remote(self, ask: messages.AddSource, url: str) -> KnownSource:
        if ask.public_key is None or ask.api_key_file is None:
            raise ContentError(
                "a remote source is added with url, public_key and api_key_file: the key that its "
                "entries are signed with, and the file in remote-keys/ with the API key to show"
            )
        if self._feed is None:
            raise ContentError("this service follows no remote sources")
        row = KnownSource(
            namespace=ask.namespace,
            name=ask.name,
            id=source_id(ask.public_key),
            public_key=ask.public_key,
            url=url,
            api_key_file=ask.api_key_file,
        )
        self._feed.check(row.remote())
        return row

    def _open(self, row: KnownSource) -> None:
        if row.key_name is not None:
            self._writer.open(self._keys.signer(row.key_name))
        elif self._feed is not None:
            follower = Follower(
                row,
                self._logs,
                self._feed,
                self._entropy,
                publish=self._aggregator.publish,
                skip=lambda through: self._aggregator.skip(row.id, through),
                pause=self._pause,
            )
            self._followers[row.id] = follower
            follower.start()

    def _row(self, row: KnownSource) -> messages.SourceRow:
        kept = self._logs.range(row.id)
        follower = self._followers.get(row.id)
        state: State = "local"
        reason, parked = None, 0
        if follower is not None:
            state, reason, parked = follower.state, follower.reason, follower.parked
        elif not row.is_local:
            state, reason = "disconnected", "this service follows no remote sources"
        return messages.SourceRow(
            namespace=row.namespace,
            name=row.name,
            id=row.id,
            public_key=row.public_key,
            first=kept.first,
            head=kept.head,
            state=state,
            equivocations=len(self._logs.evidence(row.id)),
            parked=parked,
            url=row.url,
            reason=reason,
        )

    def _draft(self, call: Call, event: messages.NewEvent) -> Draft:
        body = cbor.decode(event.body, size_max=EVENT_BYTES_MAX)
        if not isinstance(body, dict):
            raise ContentError(f"{event.kind:.80}: the body is a map, not a {type(body).__name__}")
        self._kinds.check(call, event.kind, body, event.before, event.after)
        return Draft(event.kind, event.subject, body, event.before, event.after)

    def _reader(self, call: Call, ask: messages.Follow) -> Subscription:
        if not may(call, Right.OBSERVE, ask.namespace):
            raise NotVisible("no such namespace in this view")

        def found(name: str) -> KnownSource:
            return self._registry.find(call, Right.OBSERVE, ask.namespace, name)

        only = None if ask.sources is None else {found(name).id for name in ask.sources}
        after = {found(name).id: (name, mark) for name, mark in (ask.after or {}).items()}
        for source, (name, mark) in after.items():
            if only is not None and source not in only:
                raise ContentError(f"after names {name}, which is not among the sources")
            _check_cursor(name, mark, self._aggregator.head(source))

        def label_of(source: SourceId) -> str | None:
            row = self._registry.by_id(source)
            if row is None or (only is not None and source not in only):
                return None
            # Who may observe a namespace may observe what lies below it.
            return label(row, ask.namespace) if path_covers(ask.namespace, row.namespace) else None

        marks = {source: mark for source, (_, mark) in after.items()}
        return self._aggregator.subscribe(f"reader {call.request}", label_of, marks)


def _check_cursor(source: str, after: int, head: int) -> None:
    if not 0 <= after <= head:
        raise ContentError(
            f"{source:.80} ends at number {head}: a cursor is 0 to {head}, not {after}",
            param="after",
            head=head,
            after=after,
        )
