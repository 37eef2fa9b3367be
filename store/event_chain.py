"""What a kept event log has to be: dense, each entry whole and naming the one before it.

Damage is told apart by where it is. At the very end it is a torn tail: nothing that follows it was
lost sight of, so the log can go on from its last whole entry, and says that it was cut. Anywhere
else it is loud, because what comes after it cannot be trusted, and nothing is repaired silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from protocol.errors import ContentError, CorruptObject, HuginnError
from protocol.events import read_entry
from protocol.ids import EventId, SourceId
from protocol.limits import ENTRY_BYTES_MAX
from protocol.signing import unpack_signed
from store.events import StoredEvent


class KeptLog(NamedTuple):
    """What the store says that it has: numbers `first` … `head`. `before` is the id of the entry
    before the first, `id` that of the one at the head."""

    first: int
    head: int
    before: EventId | None
    id: EventId | None


class Finding(NamedTuple):
    """What was found: whole up to number `good`, whose entry is `id`. `fault` says what is wrong
    with the next (None: nothing), `torn` whether only a tail is damaged."""

    good: int
    id: EventId | None
    fault: str | None = None
    torn: bool = False


def check_entry(entry: StoredEvent) -> None:
    """Raises CorruptObject, with source and number, unless the bytes are those of its id."""
    if not entry.body:
        raise corrupt(entry.source, entry.seq, "its bytes are damaged")
    try:
        payload, _ = unpack_signed(entry.body, size_max=ENTRY_BYTES_MAX)
        entry.id.check(payload)
    except HuginnError as error:
        raise corrupt(entry.source, entry.seq, error.message) from error


def check_page(after: int, limit: int) -> None:
    """Raises ContentError unless a page may be asked for like that."""
    if after < 0 or limit < 1:
        raise ContentError(f"a page of at least 1 entry after number 0 or more: {limit}, {after}")


def corrupt(source: SourceId, seq: int, what: str) -> CorruptObject:
    return CorruptObject(f"{source}: entry {seq}: {what}", source=str(source), seq=seq)


def fault_of(entry: StoredEvent) -> str | None:
    """What is wrong with an entry by itself: its bytes, or what is kept beside them."""
    if not entry.body:
        return "its bytes are damaged"
    try:
        id, event = read_entry(entry.body)
    except HuginnError as error:
        return f"its bytes are damaged: {error.message}"
    if id != entry.id:
        return f"its bytes do not hash to its id {entry.id}"
    beside = (entry.source, entry.seq, entry.hlc, entry.kind)
    if beside != (event.source, event.seq, event.hlc, event.kind):
        return "what is kept beside it is not what it says"
    return None


def judge(kept: KeptLog, entries: Iterable[StoredEvent]) -> Finding:
    """Goes through `entries`, all that are there from `kept.first` on, in the order of numbers."""
    seq, previous, fault = kept.first - 1, kept.before, None
    for entry in entries:
        alone = fault_of(entry)
        if fault is None:
            fault = alone or _misplaced(entry, seq, previous)
        if fault is None:
            seq, previous = entry.seq, entry.id
        elif alone is None:
            # A whole entry after, or at, the damage.
            return Finding(seq, previous, fault)
    if fault is not None:
        return Finding(seq, previous, fault, torn=True)
    if seq < kept.head:
        return Finding(seq, previous, f"it is missing, up to entry {kept.head}", torn=True)
    if seq > kept.head or previous != kept.id:
        return Finding(seq, previous, f"the head is recorded as entry {kept.head}, {kept.id}")
    return Finding(seq, previous)


def _misplaced(entry: StoredEvent, seq: int, previous: EventId | None) -> str | None:
    """What is wrong with a whole entry's place, after number `seq` with the id `previous`."""
    if entry.seq != seq + 1:
        return f"it is missing: entry {entry.seq} comes next"
    if read_entry(entry.body)[1].prev != previous:
        return f"it does not follow entry {seq}, {previous}"
    return None
