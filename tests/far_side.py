"""Something that answers as another installation does, with whatever a test has it say."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from actors.events.ports import Remote
from actors.runtime.remote_feed import HttpFeed
from protocol.event_log import Entry

SOURCES = "/huginn/v1/sources"
KEY = "hg-a-key-of-the-far-side"


@dataclass
class FarSide:
    """Something that answers as an installation does, with whatever the test has it say.

    `statuses` are answered first, one for each ask; `kept_from` is where its log begins. In
    `streams` are what its streams say, one list for each; after the last it stays silent, until it
    is `cut`.
    """

    entries: list[bytes] = field(default_factory=list)
    kept_from: int = 1
    statuses: list[int] = field(default_factory=list)
    streams: list[list[bytes]] = field(default_factory=list)
    content_type: str = "text/event-stream"
    url: str = ""
    asked: list[str] = field(default_factory=list)
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query_string)
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if self.statuses:
            return web.Response(status=self.statuses.pop(0), headers={"Location": "/elsewhere"})
        if "text/event-stream" in request.headers["Accept"]:
            return await self._stream(request)
        after, limit = int(request.query["after"]), int(request.query["limit"])
        first = max(after + 1, self.kept_from)
        data = [{"entry": b64(each)} for each in self.entries[first - 1 : first - 1 + limit]]
        gap = None
        if first > after + 1:
            gap = {"from": after + 1, "to": first - 1, "cause": "retention"}
        return web.json_response({"data": data, "head": len(self.entries), "gap": gap})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.content_type})
        await response.prepare(request)
        if not self.streams:
            await self.cut.wait()
        for piece in self.streams.pop(0) if self.streams else ():
            await response.write(piece)
        assert request.transport is not None
        request.transport.abort()
        return response


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def said(entry: Entry) -> bytes:
    """An entry as a stream says it."""
    return b"data: " + msgspec.json.encode({"entry": b64(entry.body)}) + b"\n\n"


@asynccontextmanager
async def serving(far: FarSide) -> AsyncIterator[FarSide]:
    app = web.Application()
    app.router.add_get(f"{SOURCES}/x/events", far.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    far.url = f"http://127.0.0.1:{runner.addresses[0][1]}{SOURCES}/x"
    try:
        yield far
    finally:
        await runner.cleanup()


def allow(keys: Path, url: str, key: str = KEY, namespace: str = "operator") -> None:
    """Lets the sources of `namespace` ask `url`, showing `key`."""
    path = keys / "far"
    path.write_text(f"{key}\n{url.partition(SOURCES)[0]}\n{namespace}\n")
    path.chmod(0o600)


def remote(url: str, namespace: str = "operator/team") -> Remote:
    return Remote(url, "far", namespace)


@asynccontextmanager
async def asking(keys: Path, **options: Any) -> AsyncIterator[HttpFeed]:
    feed = HttpFeed(keys, **options)
    try:
        yield feed
    finally:
        await feed.close()
