"""`/huginn/v1/sources/{name}/events` and `/huginn/v1/events`: append, read, wait, and follow.

An append is answered when it is durable. Reading gives pages; with `wait_s` an empty one waits for
the next event; with `Accept: text/event-stream` the answer goes on for as long as the client reads,
its `id:` lines say where to resume, and what is missing says so in its place (`EventStreamGap`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final

from aiohttp import web

from actors.gateway.event_feed import (
    EVENTS,
    EventFeed,
    Happening,
    read_cursor,
    sources_in,
    write_cursor,
)
from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import of_huginn
from actors.gateway.http.event_json import (
    GAP,
    EventFields,
    entry_json,
    event_json,
    gap_json,
    new_event,
)
from actors.gateway.http.extension import extension
from actors.gateway.http.parse import converted, query_integer, read_json
from actors.gateway.http.sse import EventStream
from actors.gateway.http.state import CALLER, ENDLESS, GATEWAY
from protocol.errors import ContentError, HuginnError
from protocol.ids import SourceId
from protocol.messages.events import (
    EVENTS_MAX,
    Appended,
    AppendedEvent,
    AppendEvents,
    EventPage,
    ReadEvents,
)

Json = dict[str, Any]
KEY_HEADER: Final = "Idempotency-Key"
LIMIT_DEFAULT: Final = 100
WAIT_SECONDS_MAX: Final = 60
_SEQ_MAX: Final = 2**63 - 1
_SSE: Final = "text/event-stream"
_NS_PER_S: Final = 10**9


async def append_events(request: web.Request) -> web.Response:
    """Append one event, or a list of them, all or none."""
    document = await read_json(request)
    given = document if isinstance(document, list) else [document]
    if not 1 <= len(given) <= EVENTS_MAX:
        raise ContentError(f"a list of 1 to {EVENTS_MAX} events, not {len(given)}")
    events = [new_event(converted(each, EventFields)) for each in given]
    ask = AppendEvents(
        namespace=extension(request, None).namespace,
        source=request.match_info["name"],
        events=events,
        key=request.headers.get(KEY_HEADER),
    )
    done = await request[CALLER].ask(EVENTS, "append", ask, Appended)
    rows = [_appended(each) for each in done.events]
    if isinstance(document, list):
        return json_response({"object": "list", "data": rows})
    return json_response(rows[0])


async def read_events(request: web.Request) -> web.StreamResponse:
    """One source's events after number `after`."""
    name = request.match_info["name"]
    namespace = extension(request, None).namespace
    resumed = request.headers.get("Last-Event-ID") if _streams(request) else None
    after = query_integer(request, "after", 0, 0, _SEQ_MAX)
    if resumed is not None and resumed.isascii() and resumed.isdigit():
        after = min(int(resumed[:20]), _SEQ_MAX)
    limit = query_integer(request, "limit", LIMIT_DEFAULT, 1, EVENTS_MAX)
    wait_s = query_integer(request, "wait_s", 0, 0, WAIT_SECONDS_MAX)
    caller = request[CALLER]
    ask = ReadEvents(namespace=namespace, source=name, after=after, limit=limit)
    page = await caller.ask(EVENTS, "read", ask, EventPage)

    async def feed() -> EventFeed:
        rows = await sources_in(caller, namespace)
        return EventFeed(caller, namespace, {row.id: after for row in rows}, only=name)

    if _streams(request):
        return await _stream(request, await feed(), lambda item, _: _seq_id(item))
    if not page.entries and page.gap is None and wait_s:
        with _endless(request):
            await _first(await feed(), wait_s)
        page = await caller.ask(EVENTS, "read", ask, EventPage)
    return json_response(
        {
            "object": "list",
            "data": [entry_json(name, entry) for entry in page.entries],
            "gap": None if page.gap is None else gap_json(name, page.gap),
            "head": page.head,
        }
    )


async def merged_events(request: web.Request) -> web.StreamResponse:
    """Every source that the caller may observe, as one stream ordered by (hlc, source, seq).

    `after` is a cursor that was given with an earlier page or item, `beginning` or `now`; without
    it a page is from the beginning, a stream from now on.
    """
    caller = request[CALLER]
    namespace = extension(request, None).namespace
    rows = await sources_in(caller, namespace)
    heads = {row.id: row.head for row in rows}
    streams = _streams(request)
    after = request.query.get("after") or ("now" if streams else "beginning")
    if streams:
        after = request.headers.get("Last-Event-ID", after)
    marks = {"now": heads, "beginning": {}}.get(after)
    feed = EventFeed(caller, namespace, read_cursor(after, rows) if marks is None else marks)
    if streams:
        return await _stream(request, feed, lambda _, marks: write_cursor(marks))
    limit = query_integer(request, "limit", LIMIT_DEFAULT, 1, EVENTS_MAX)
    wait_s = query_integer(request, "wait_s", 0, 0, WAIT_SECONDS_MAX)
    with _endless(request):
        items = [_item_json(item) for item in await _page(feed, heads, limit, wait_s)]
    return json_response({"object": "list", "data": items, "cursor": write_cursor(feed.marks)})


async def _page(
    feed: EventFeed, heads: dict[SourceId, int], limit: int, wait_s: int
) -> list[Happening]:
    """What lies between the feed's marks and `heads`; where that is nothing, what comes first."""
    page: list[Happening] = []
    if not _lies_ahead(feed, heads):
        first = await _first(feed, wait_s) if wait_s else None
        return [] if first is None else [first]
    async with aclosing(feed.follow()) as items:
        async for item in items:
            page.append(item)
            if len(page) >= limit or not _lies_ahead(feed, heads):
                break
    return page


def _lies_ahead(feed: EventFeed, heads: dict[SourceId, int]) -> bool:
    return any(feed.marks.get(source, 0) < head for source, head in heads.items())


async def _first(feed: EventFeed, wait_s: int) -> Happening | None:
    """The next item of `feed`, if it comes within `wait_s` seconds."""
    async with aclosing(feed.follow()) as items:
        try:
            async with asyncio.timeout(wait_s):
                return await anext(items)
        except TimeoutError:
            return None


async def _stream(
    request: web.Request,
    feed: EventFeed,
    id_of: Callable[[Happening, dict[SourceId, int]], str | None],
) -> web.StreamResponse:
    """Sends what `feed` gives until the client goes. An error is the last event of the stream."""
    limits = request.app[GATEWAY].limits
    stream = EventStream({}, write_s=limits.write_ns_max / _NS_PER_S)
    await stream.open(request)
    await stream.ping()
    pinged = _pinged(feed.follow(), limits.ping_ns / _NS_PER_S)
    with _endless(request):
        async with aclosing(pinged) as items:
            try:
                async for item in items:
                    if item is None:
                        await stream.ping()
                    else:
                        name = None if item.gap is None else GAP
                        await stream.send(_item_json(item), name, id_of(item, feed.marks))
            except HuginnError as error:
                await stream.send(of_huginn(error).body)
    return stream.response


@contextmanager
def _endless(request: web.Request) -> Iterator[None]:
    """Inside, a stop of the service does not wait for the request."""
    task = asyncio.current_task()
    assert task is not None, "a handler runs in a task"
    request.app[ENDLESS].add(task)
    try:
        yield
    finally:
        request.app[ENDLESS].discard(task)


async def _pinged(
    items: AsyncGenerator[Happening, None], silence_s: float
) -> AsyncGenerator[Happening | None, None]:
    """The items, and None after each `silence_s` seconds without one."""
    pending: asyncio.Future[Happening] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait({pending}, timeout=silence_s)
            if not done:
                yield None
                continue
            item, pending = pending.result(), None
            yield item
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await items.aclose()


def _streams(request: web.Request) -> bool:
    return _SSE in request.headers.get("Accept", "")


def _seq_id(item: Happening) -> str | None:
    """The number to resume after; an overrun's gap is none, because its entries follow."""
    if item.event is not None:
        return str(item.event.seq)
    return str(item.gap.last) if item.gap is not None and item.gap.cause == "retention" else None


def _item_json(item: Happening) -> Json:
    if item.gap is not None:
        return gap_json(item.source, item.gap)
    assert item.event is not None, "an item is an event or a gap"
    assert item.event_id is not None, "an event has an id"
    return event_json(item.source, item.event_id, item.event, item.entry or b"")


def _appended(each: AppendedEvent) -> Json:
    return {"seq": each.seq, "id": str(each.id)}
