"""Reading a stream of server-sent events as bytes, for tests of what is on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import ClientResponse


def events(raw: bytes) -> list[Any]:
    """The events of a whole stream: JSON, or the text "[DONE]". Comments are left out.

    Stricter than a client has to be: nothing but `data:` lines and comments, one line an event.
    """
    assert raw.endswith(b"\n\n")
    found: list[Any] = []
    for block in raw[:-2].split(b"\n\n"):
        if block.startswith(b":"):
            continue
        assert block.startswith(b"data: "), block
        assert b"\n" not in block
        data = block[6:]
        found.append("[DONE]" if data == b"[DONE]" else msgspec.json.decode(data))
    return found


async def read_events(response: ClientResponse) -> list[Any]:
    """The events of an open response, to its end."""
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    return events(await response.read())


def joined(chunks: list[Any], index: int = 0) -> str:
    """The text of one choice of a chat, put together from its chunks."""
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk["choices"]
        if choice["index"] == index
    )
