"""Chains of signed events for tests, and one store of event logs of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from protocol.event_log import START, Entry, Position
from protocol.events import Event, event_id, sign_event, source_id
from protocol.ids import EventId, SourceId
from protocol.signing import SEED_BYTES, Signer
from store.events import EventLogs, StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_tables import SqliteTables
from store.tables import Tables

SIGNERS: Final = tuple(Signer(bytes((number,)) * SEED_BYTES) for number in range(1, 4))
SIGNER: Final = SIGNERS[0]
SOURCE: Final = source_id(SIGNER.public)


def entry_after(
    head: Position = START, subject: str = "1122", *, signer: Signer = SIGNER, **fields: Any
) -> Entry:
    """A MergeSucceeded of `subject` after `head`, one second later; `fields` override its own."""
    event = Event(
        **{
            "v": 1,
            "source": source_id(signer.public),
            "seq": head.seq + 1,
            "hlc": head.hlc + 10**9,
            "kind": "MergeSucceeded",
            "subject": subject,
            "body": {"merge_commit": "0123abcd"},
            "prev": head.id,
            **fields,
        }
    )
    return Entry(event_id(event), event, sign_event(event, signer))


def position(entry: Entry) -> Position:
    return Position(entry.event.seq, entry.id, entry.event.hlc)


def chain(
    count: int, *, after: Position = START, signer: Signer = SIGNER, name: str = "story"
) -> list[Entry]:
    """`count` entries of one log, about `name` 1, 2, …"""
    entries: list[Entry] = []
    for number in range(1, count + 1):
        entries.append(entry_after(after, f"{name} {number}", signer=signer))
        after = position(entries[-1])
    return entries


def stored(entry: Entry) -> StoredEvent:
    """The entry as a store takes it."""
    event = entry.event
    return StoredEvent(event.source, event.seq, entry.id, event.hlc, event.kind, entry.body)


def stored_chain(count: int, **options: Any) -> list[StoredEvent]:
    return [stored(entry) for entry in chain(count, **options)]


def ids(entries: Sequence[Entry] | Sequence[StoredEvent]) -> list[EventId]:
    return [entry.id for entry in entries]


def source_of(signer: Signer) -> SourceId:
    return source_id(signer.public)


def event_logs(kind: str, root: Path) -> tuple[EventLogs, Tables]:
    """Logs of that kind, and the tables beside them; those in memory ignore `root`."""
    if kind == "memory":
        tables = MemoryTables()
        return MemoryEventLogs(tables), tables
    database = Database(root / "events.db")
    return SqliteEventLogs(database), SqliteTables(database)
