"""Asked of the events room about sources: what there are, what happened, and what happens next.

Half of the room's messages; the other half, and the table of its operations, is in `events`.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.ids import EventId, SourceId
from protocol.record import Record

# Events in one Append, and entries in one page.
EVENTS_MAX: Final = 1024


class AddSource(Record):
    """Make the source `name` in `namespace`, or give it again: idempotent by its fields.

    Without `url` its log is ours and signed by a key made here. With `url` it is followed from
    another installation: `url` is the source's resource there (`…/huginn/v1/sources/NAME`),
    `public_key` the key that its entries have to be signed with, `api_key_file` the name of a file
    of the data directory's `remote-keys/` that holds the API key to present there, the origin to
    present it to, and the namespace that may. Conflict if the name is taken by another source.
    """

    namespace: str
    name: str
    url: str | None = None
    public_key: bytes | None = None
    api_key_file: str | None = None


class RemoveSource(Record):
    """Forget a source and its log. Sessions see the end as a gap, if they had not seen it all."""

    namespace: str
    name: str


class ListSources(Record):
    """Every source at or below `namespace` that the caller may observe."""

    namespace: str


class SourceRow(Record):
    """One source. `first` … `head` are the sequence numbers that are kept (head 0: none yet,
    `first` = head + 1: none any more). `state`: `local`, `following`, `disconnected`, `refused`
    (its entries do not verify) or `forked` (two entries for one number: `equivocations` of them are
    kept as evidence, and the log stands still). `reason` says what is wrong, where something is.
    `parked` entries wait for the ones before them."""

    namespace: str
    name: str
    id: SourceId
    public_key: bytes
    first: int
    head: int
    state: Literal["local", "following", "disconnected", "refused", "forked"]
    equivocations: int
    parked: int
    url: str | None = None
    reason: str | None = None


class Sources(Record):
    sources: list[SourceRow]


class NewEvent(Record):
    """One event to append. `kind` is of the taxonomy, or a registered `namespace.Name`; `subject`
    what it is about (a story id); `before` and `after` the stages of a transition; `body` the
    kind's payload as canonical CBOR of a map. Numbers that are not integers are decimal strings."""

    kind: str
    subject: str
    body: bytes
    before: str | None = None
    after: str | None = None


class AppendEvents(Record):
    """Append to a local source, in order, all or none; durable when answered. `key`: an append
    with a key that the source has seen answers as the first one did; Conflict if it says other
    things."""

    namespace: str
    source: str
    events: list[NewEvent]
    key: str | None = None


class AppendedEvent(Record):
    seq: int
    id: EventId


class Appended(Record):
    """In the order of the events."""

    events: list[AppendedEvent]


class ReadEvents(Record):
    """Entries of a source after number `after`, at most `limit` (1 … EVENTS_MAX). ContentError for
    a cursor past the head; for one before what is kept, the page begins with a gap."""

    namespace: str
    source: str
    after: int
    limit: int


class Gap(Record):
    """`EventStreamGap`: `count` entries of `source`, numbers `first` … `last`, that are not here.
    `cause`: `overrun` (the reader was too slow; the log still has them), `retention` (gone)."""

    source: SourceId
    first: int
    last: int
    count: int
    cause: Literal["overrun", "retention"]


class EventPage(Record):
    """`entries` as they were signed (`protocol.events`), dense from the cursor or the gap's end."""

    entries: list[bytes]
    head: int
    gap: Gap | None = None


class Follow(Record):
    """Follow sources (None: all that the caller may observe) as one stream ordered by (hlc,
    source, seq), from now on, or from the numbers in `after` (by source name)."""

    namespace: str
    sources: list[str] | None = None
    after: dict[str, int] | None = None


class StreamItem(Record):
    """One item of a followed stream: an entry as signed with its source's name, or a gap."""

    source: str
    entry: bytes | None = None
    gap: Gap | None = None


class RegisterKind(Record):
    """Register `kind` (`namespace.Name`) with a JSON Schema (draft 2020-12, UTF-8 JSON) for its
    body. A kind is registered once: Conflict for another schema."""

    namespace: str
    kind: str
    schema: bytes


class KindRow(Record):
    kind: str
    schema: bytes


class Kinds(Record):
    kinds: list[KindRow]
