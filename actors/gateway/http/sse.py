"""Server-sent events: the one place that writes a stream.

Headers and the first event leave before any prefill; silence is broken by comments, so that no
proxy or client gives up on a long prompt. There are no `id:` lines: a broken stream cannot be
resumed, and saying otherwise would make clients try.
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


def event(data: Any) -> bytes:
    """`data` as JSON in one event."""
    encoded = msgspec.json.encode(data)
    for character, escape in _LINE_ENDS.items():
        encoded = encoded.replace(character, escape)
    return b"data: " + encoded + b"\n\n"


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

    async def send(self, data: Any) -> None:
        await self._write(event(data))

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
