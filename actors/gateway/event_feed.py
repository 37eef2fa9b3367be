"""Following sources for a caller, for as long as it stays: one stream, however often it is asked.

The events room ends a stream when the handle does that it was asked with, so that a caller whose
key was revoked meanwhile is refused. Here it is asked again, with a new handle, from the marks that
were reached: nothing is missed and nothing comes twice. A cursor is those marks in a line of text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

from actors.gateway.caller import Caller
from protocol.errors import ContentError
from protocol.events import Event, read_entry
from protocol.ids import EventId, SourceId
from protocol.messages.events import Follow, Gap, ListSources, SourceRow, Sources, StreamItem

EVENTS: Final = "events"
# Of a source's id, in a cursor: 60 bits tell the sources of one view apart.
_ID_CHARS: Final = 12


class Happening(NamedTuple):
    """One item of the stream: an event with its entry as signed, or a gap."""

    source: str
    id: SourceId
    entry: bytes | None
    event: Event | None
    event_id: EventId | None
    gap: Gap | None


class EventFeed:
    """What `caller` may observe at and below `namespace`, or one source of it (`only`).

    `marks` are the numbers to read on from, by source; a source that is not among them is new, and
    is read from its beginning.
    """

    def __init__(
        self, caller: Caller, namespace: str, marks: Mapping[SourceId, int], only: str | None = None
    ) -> None:
        self._caller = caller
        self._namespace = namespace
        self._only = only
        self.marks = dict(marks)

    async def follow(self) -> AsyncGenerator[Happening, None]:
        """Everything from the marks on, for ever. Raises what the room answers."""
        while True:
            async with aclosing(self._once(await self._ask())) as items:
                async for item in items:
                    yield item

    async def _ask(self) -> Follow:
        rows = await sources_in(self._caller, self._namespace)
        after = {
            name: min(self.marks.get(row.id, 0), row.head)
            for row in rows
            if (name := label(row, self._namespace)) == self._only or self._only is None
        }
        only = None if self._only is None else [self._only]
        return Follow(namespace=self._namespace, sources=only, after=after)

    async def _once(self, ask: Follow) -> AsyncGenerator[Happening, None]:
        async with aclosing(self._caller.stream(EVENTS, "follow", ask, StreamItem)) as items:
            async for item in items:
                yield self._taken(item)

    def _taken(self, item: StreamItem) -> Happening:
        if item.entry is not None:
            id, event = read_entry(item.entry)
            self.marks[event.source] = event.seq
            return Happening(item.source, event.source, item.entry, event, id, None)
        gap = item.gap
        assert gap is not None, "an item is an entry or a gap"
        if gap.cause == "retention":
            self.marks[gap.source] = gap.last
        return Happening(item.source, gap.source, None, None, None, gap)


async def sources_in(caller: Caller, namespace: str) -> list[SourceRow]:
    """The sources at and below `namespace` that the caller may observe."""
    found = await caller.ask(EVENTS, "sources", ListSources(namespace=namespace), Sources)
    return found.sources


def label(row: SourceRow, namespace: str) -> str:
    """The source's name from `namespace`: with the path below it, if any."""
    below = row.namespace.removeprefix(namespace).strip("/")
    return f"{below}/{row.name}" if below else row.name


def write_cursor(marks: Mapping[SourceId, int]) -> str:
    """Marks as text that a URL or a header carries as it is."""
    return "~".join(f"{_short(source)}.{mark}" for source, mark in sorted(marks.items()))


def read_cursor(text: str, rows: list[SourceRow]) -> dict[SourceId, int]:
    """The marks that `write_cursor` wrote, of the sources there still are; ContentError."""
    short_to_row = {_short(row.id): row for row in rows}
    marks: dict[SourceId, int] = {}
    for part in text.split("~") if text else ():
        short, _, mark = part.partition(".")
        if not mark.isascii() or not mark.isdigit() or len(mark) > 19:
            raise ContentError("after is a cursor that this service gave", param="after")
        row = short_to_row.get(short)
        if row is None:
            continue
        if int(mark) > row.head:
            raise ContentError(
                f"{row.name} ends at number {row.head}: a cursor past it is of another log",
                param="after",
            )
        marks[row.id] = int(mark)
    return marks


def _short(source: SourceId) -> str:
    return str(source).partition(":")[2][:_ID_CHARS]
