"""Server-sent events: the one place that writes a stream.

Headers and the first event leave before any prefill; silence is broken by comments, so that no
proxy or client gives up on a long prompt. An answer has no `id:` lines: its broken stream cannot be
resumed, and saying otherwise would make clients try. Streams of events from a log have them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # Proxies that would collect the stream before they pass it on.
    "X-Accel-Buffering": "no",
}
# Line ends to some clients' splitters, though not to SSE; JSON may escape them anywhere.
_LINE_ENDS: Final = {
    "\u0085".encode(): rb"\u0085",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}


def event(data: Any, name: str | None = None, id: str | None = None) -> bytes:
    """`data` as JSON in one event, of the kind `name` where a dialect names its events, and with
    `id`, to resume after, on a stream that can be."""
    encoded = msgspec.json.encode(data)
    for character, escape in _LINE_ENDS.items():
        encoded = encoded.replace(character, escape)
    kind = b"" if name is None else b"event: " + name.encode("ascii") + b"\n"
    place = b"" if id is None else b"id: " + id.encode("ascii") + b"\n"
    return place + kind + b"data: " + encoded + b"\n\n"


class EventStream:
    """An open stream of events. A client that does not read for `write_s` seconds loses it:
    ConnectionResetError, as when it closes."""

    def __init__(self, headers: dict[str, str], *, write_s: float) -> None:
        self.response = web.StreamResponse(headers={**_HEADERS, **headers})
        self._write_s = write_s
        self._transport: asyncio.Transport | None = None

    async def open(self, request: web.Request) -> None:
        self._transport = request.transport
        await self.response.prepare(request)

    async def send(self, data: Any, name: str | None = None, id: str | None = None) -> None:
        await self._write(event(data, name, id))

    async def ping(self) -> None:
        await self._write(b": ping\n\n")

    async def done(self) -> None:
        """The last event of a stream that came to its end."""
        await self._write(b"data: [DONE]\n\n")

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_s):
                await self.response.write(data)
        except TimeoutError as error:
            # Not closed: that would wait until what is buffered has been read.
            if self._transport is not None:
                self._transport.abort()
            raise ConnectionResetError(f"the client read nothing for {self._write_s} s") from error
