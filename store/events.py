"""Event logs: signed entries by (source, sequence number), merged by union, trimmed from below.

`EventLogs` is the contract; the SQLite store and the in-memory one pass the same suite. The store
knows bytes and numbers, never what an event says: who calls has verified the signature and the
chain. What is acknowledged is durable; a number that is taken keeps its first entry, and any
other entry for it is kept beside, as evidence of equivocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from protocol.errors import Conflict
from protocol.ids import EventId, SourceId
from store.tables import Change


class StoredEvent(NamedTuple):
    """One entry. `hlc` and `kind` are the event's own, kept beside for order and counting;
    `body` is the entry as it was signed."""

    source: SourceId
    seq: int
    id: EventId
    hlc: int
    kind: str
    body: bytes


class EntrySize(NamedTuple):
    """What is known of an entry without reading it: its number, time, and bytes of body."""

    seq: int
    hlc: int
    size: int


class LogRange(NamedTuple):
    """What is kept of a source: numbers `first` … `head`, and the id of the entry at `head`.

    Nothing yet: first 1, head 0, id None. All trimmed: first = head + 1, and the id stays.
    """

    first: int
    head: int
    id: EventId | None


class EventLogs(Protocol):
    """The logs of all sources. Any thread may call. After `close` everything raises StoreFault."""

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        """Adds entries, all or none, with `changes` to the tables of the same file in the same
        transaction; the future resolves when they are durable, and many callers share one fsync.

        Each source's entries continue its log densely: Conflict (details `source`, `expected`,
        `found`) for a number that is taken or not the next.
        """

    def range(self, source: SourceId) -> LogRange:
        """What is kept of `source`."""

    def ranges(self) -> Mapping[SourceId, LogRange]:
        """What is kept of every source that has had an entry."""

    def read(
        self, source: SourceId, after: int, limit: int, *, bytes_max: int | None = None
    ) -> list[StoredEvent]:
        """The kept entries with numbers above `after` (>= 0), in order, at most `limit` (>= 1), and
        no more after the first than `bytes_max` bytes of bodies hold. The bytes are checked against
        their id (CorruptObject names source and number)."""

    def sizes(self, source: SourceId, after: int, limit: int) -> list[EntrySize]:
        """How large the entries are that `read` would give; no body is read, and none checked."""

    def keep_evidence(self, entry: StoredEvent) -> bool:
        """Keeps an entry that its source should never have signed, such as one for a number that
        another one has; whether it was new. At most EQUIVOCATIONS_MAX of a source are kept, and
        then False. ContentError for the very entry that has the number."""

    def evidence(self, source: SourceId) -> list[StoredEvent]:
        """The entries that were kept beside, in the order of (seq, id)."""

    def trim(self, source: SourceId, through: int) -> int:
        """Erases entries with numbers up to `through` (never past the head); how many went."""

    def skip(self, source: SourceId, through: int, id: EventId) -> None:
        """Goes on after number `through`, whose entry had `id`, because the numbers up to it are
        kept nowhere any more: what is kept of the log is erased, and `through` + 1 is the next.
        Conflict unless `through` is past the head."""

    def drop(self, source: SourceId) -> int:
        """Erases a source's log and evidence whole; how many entries went."""

    def check(self, *, newest: int | None = None) -> list[SourceId]:
        """Reads every entry, or the `newest` of each source: ids, density and the chain of ids,
        while nobody else writes. A torn tail (the newest entries of a source, not whole) is
        truncated and its source given back; anything wrong before a good entry raises CorruptObject
        that names source and number: nothing is repaired silently."""

    def close(self) -> None:
        """Finishes what was asked for and gives up the file. Twice is once."""


def append_conflict(entry: StoredEvent, expected: int) -> Conflict:
    """What is raised for an entry whose number is not the next, `expected`."""
    state = "is taken" if entry.seq < expected else "would leave a gap"
    return Conflict(
        f"number {entry.seq} of {entry.source} {state}: the next is {expected}",
        source=str(entry.source),
        expected=expected,
        found=entry.seq,
    )


def skip_conflict(source: SourceId, through: int, head: int) -> Conflict:
    """What is raised for a skip that would go back."""
    return Conflict(
        f"{source} is at number {head}, and can only go on after a later one, not after {through}",
        source=str(source),
        head=head,
        through=through,
    )


def page_of(entries: Iterable[StoredEvent], bytes_max: int | None) -> list[StoredEvent]:
    """The first of `entries`, and those after it for as long as the bodies fit."""
    page: list[StoredEvent] = []
    size = 0
    for entry in entries:
        size += len(entry.body)
        if page and bytes_max is not None and size > bytes_max:
            break
        page.append(entry)
    return page
