"""The one writer of local logs: appends to a source in the order in which they come.

Each source has a queue and, while there is something in it, one task: it numbers, chains and signs
what waits, has it committed in one transaction, and answers when that is durable. What arrives
meanwhile shares the next commit. A key that the source has seen is answered from the table in which
the first answer was kept, in the same transaction as its events.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from actors.ports import Clock
from protocol.cbor import Value
from protocol.errors import Conflict, NotVisible
from protocol.events import Event, event_id, next_hlc, sign_event, source_id
from protocol.ids import EventId, SourceId
from protocol.messages.events import EVENTS_MAX, Appended, AppendedEvent
from protocol.record import Record, decode_record, encode_record
from protocol.signing import Signer
from store.commit import settled
from store.events import EventLogs, StoredEvent
from store.tables import Change, Put, Tables, Trim

# Appends whose keys are remembered, of one source; older keys are new again.
KEYS_MAX: Final = 65_536
TRIM_EVERY: Final = 256
_HLC, _MARK, APPENDS = "hlc", b"mark", "appends"
# Signatures between two moments in which others are served.
_SIGN_MAX: Final = 32


@dataclass(frozen=True)
class Draft:
    """One event to append, checked; its number, time and predecessor are still to come."""

    kind: str
    subject: str
    body: dict[str, Value]
    before: str | None = None
    after: str | None = None


class KeyedAppend(Record):
    """What an append with a key gave: its first number, its entries' ids, and the digest of what
    was asked for."""

    asked: bytes
    first: int
    ids: list[EventId]


@dataclass(frozen=True)
class _Waiting:
    drafts: Sequence[Draft]
    key: bytes | None
    asked: bytes
    answer: asyncio.Future[Appended]


@dataclass
class _Queue:
    signer: Signer
    keyed: int = 0
    waiting: deque[_Waiting] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


@dataclass
class _Batch:
    """What one commit holds, and whom it answers."""

    entries: list[StoredEvent] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    answers: list[tuple[_Waiting, Appended]] = field(default_factory=list)
    keyed: dict[bytes, KeyedAppend] = field(default_factory=dict)


class LogWriter:
    """Appends to `logs`, which lie in the same file as `tables`. `publish` is told of what has
    become durable, in order."""

    def __init__(
        self,
        logs: EventLogs,
        tables: Tables,
        clock: Clock,
        publish: Callable[[Sequence[StoredEvent]], None],
        *,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._logs = logs
        self._keys_max = keys_max
        self._clock = clock
        self._publish = publish
        self._queues: dict[SourceId, _Queue] = {}
        self._appends = tables.keyed(APPENDS)
        mark = tables.keyed(_HLC).get(_MARK)
        # One mark for all local sources: their times never repeat, also over a restart.
        self._hlc = int.from_bytes(mark or b"", "big")

    def open(self, signer: Signer) -> None:
        """Takes appends of the source with this key from now on."""
        self._queues[source_id(signer.public)] = _Queue(signer)

    async def close(self, source: SourceId) -> None:
        """Takes no more of `source`; returns when what was under way is over."""
        queue = self._queues.pop(source, None)
        if queue is not None and queue.task is not None:
            await asyncio.wait({queue.task})

    def forget(self, source: SourceId) -> None:
        """Forget the keys of appends to `source`, which is closed."""
        self._appends.trim(0, source.digest)

    async def drain(self) -> None:
        """Finishes what was asked for."""
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def append(
        self, source: SourceId, drafts: Sequence[Draft], key: str | None, asked: bytes
    ) -> Appended:
        """Appends `drafts`, all or none; durable when it returns, and done also if the caller goes
        away. `asked` is a digest of what was asked for.

        Raises NotVisible for a source that is closed, Conflict for a key of another append,
        LimitExceeded for an event that is too large.
        """
        queue = self._queues.get(source)
        if queue is None:
            raise NotVisible("no such source in this view")
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        place = None if key is None else source.digest + hashlib.sha256(key.encode()).digest()
        queue.waiting.append(_Waiting(drafts, place, asked, answer))
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._work(source, queue))
        return await answer

    async def _work(self, source: SourceId, queue: _Queue) -> None:
        while queue.waiting:
            batch = _Batch()
            taken = list[_Waiting]()
            try:
                while queue.waiting and len(batch.entries) < EVENTS_MAX:
                    taken.append(queue.waiting.popleft())
                    await self._build(source, queue, taken[-1], batch)
                if batch.entries:
                    mark = self._hlc.to_bytes(8, "big")
                    changes = [*batch.changes, Put(_HLC, _MARK, mark)]
                    await settled(self._logs.append_soon(batch.entries, changes))
                    self._publish(batch.entries)
            except Exception as error:
                for waiting in taken:
                    _refuse(waiting, error)
            for waiting, appended in batch.answers:
                if not waiting.answer.done():
                    waiting.answer.set_result(appended)

    async def _build(
        self, source: SourceId, queue: _Queue, waiting: _Waiting, batch: _Batch
    ) -> None:
        """Adds one append to `batch`; one that is refused is answered and leaves no trace."""
        try:
            if waiting.key is not None:
                seen = self._seen(waiting.key, batch)
                if seen is not None:
                    batch.answers.append((waiting, _again(seen, waiting.asked)))
                    return
            made = await self._signed(source, queue.signer, waiting.drafts, batch.entries)
        except Exception as error:
            _refuse(waiting, error)
            return
        batch.entries.extend(made)
        batch.answers.append((waiting, _appended(made[0].seq, [entry.id for entry in made])))
        if waiting.key is not None:
            ids = [entry.id for entry in made]
            kept = KeyedAppend(asked=waiting.asked, first=made[0].seq, ids=ids)
            batch.keyed[waiting.key] = kept
            batch.changes.append(Put(APPENDS, waiting.key, encode_record(kept)))
            queue.keyed += 1
            if queue.keyed % TRIM_EVERY == 0:
                batch.changes.append(Trim(APPENDS, self._keys_max, source.digest))

    def _seen(self, key: bytes, batch: _Batch) -> KeyedAppend | None:
        found = batch.keyed.get(key)
        if found is not None:
            return found
        kept = self._appends.get(key)
        return None if kept is None else decode_record(KeyedAppend, kept)

    async def _signed(
        self,
        source: SourceId,
        signer: Signer,
        drafts: Sequence[Draft],
        before: Sequence[StoredEvent],
    ) -> list[StoredEvent]:
        """The entries that continue the log, or `before` where something is in the batch."""
        kept = self._logs.range(source)
        seq, prev = (before[-1].seq, before[-1].id) if before else (kept.head, kept.id)
        made = list[StoredEvent]()
        for draft in drafts:
            seq, self._hlc = seq + 1, next_hlc(self._hlc, self._clock.wall_ns())
            event = Event(
                v=1,
                source=source,
                seq=seq,
                hlc=self._hlc,
                kind=draft.kind,
                subject=draft.subject,
                body=draft.body,
                prev=prev,
                before=draft.before,
                after=draft.after,
            )
            prev = event_id(event)
            body = sign_event(event, signer)
            made.append(StoredEvent(source, seq, prev, event.hlc, event.kind, body))
            if len(made) % _SIGN_MAX == 0:
                await asyncio.sleep(0)
        return made


def _again(seen: KeyedAppend, asked: bytes) -> Appended:
    if seen.asked != asked:
        raise Conflict("this key came with other events before: take a new key for each append")
    return _appended(seen.first, seen.ids)


def _appended(first: int, ids: Sequence[EventId]) -> Appended:
    events = [AppendedEvent(seq=first + index, id=id) for index, id in enumerate(ids)]
    return Appended(events=events)


def _refuse(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
