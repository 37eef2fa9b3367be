"""A Matrix server of one room and two members, in this process: for what needs no real one.

It gives what is said to whoever looks, as the client API has it, and keeps one event for each
transaction id. `replying` can be held: then what is sent to it hangs, as on a server that is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

ROOM: Final = "!room:localhost"
BOT: Final = "@huginn:localhost"
ALICE: Final = "@alice:localhost"
_API: Final = "/_matrix/client/v3"
_SHUTDOWN_SECONDS: Final = 1.0


class Homeserver:
    """`looks`: how often somebody looked at what is new. `sent`: how often a reply came, kept or
    held; `replies`: those that are kept, by their transaction id."""

    def __init__(self) -> None:
        self.url = ""
        self.looks = 0
        self.sent = 0
        self.replies: dict[str, str] = {}
        self.replying = asyncio.Event()
        self.replying.set()
        self._said: list[dict[str, Any]] = []
        self._moved = asyncio.Condition()

    async def say(self, text: str) -> str:
        """Alice says `text`; the id of the event."""
        event = f"$event-{len(self._said)}"
        self._said.append(
            {
                "type": "m.room.message",
                "event_id": event,
                "sender": ALICE,
                "origin_server_ts": len(self._said),
                "content": {"msgtype": "m.text", "body": text},
            }
        )
        await self._move()
        return event

    async def until_looked(self, looks: int) -> None:
        """Until somebody looked so often."""
        await self._until(lambda: self.looks >= looks)

    async def until_sent(self, sent: int) -> None:
        """Until so many replies came, kept or held."""
        await self._until(lambda: self.sent >= sent)

    async def until_replied(self, replies: int) -> None:
        """Until so many replies are kept."""
        await self._until(lambda: len(self.replies) >= replies)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._moved:
            await self._moved.wait_for(reached)

    async def _move(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    # -- the client API ----------------------------------------------------------------------

    async def _sync(self, request: web.Request) -> web.Response:
        self.looks += 1
        await self._move()
        since = request.query.get("since")
        if since is not None:
            wait_s = int(request.query.get("timeout", "0")) / 1000
            # A look that ends with nothing new is answered as one that found something.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s), self._moved:
                    await self._moved.wait_for(lambda: len(self._said) > int(since))
        events = [] if since is None else self._said[int(since) :]
        timeline = {"events": events, "limited": False, "prev_batch": since or "0"}
        joined = {ROOM: {"timeline": timeline}} if events else {}
        return web.json_response({"next_batch": str(len(self._said)), "rooms": {"join": joined}})

    async def _members(self, request: web.Request) -> web.Response:
        return web.json_response({"joined": {BOT: {}, ALICE: {}}})

    async def _typing(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _send(self, request: web.Request) -> web.Response:
        content = await request.json()
        self.sent += 1
        await self._move()
        await self.replying.wait()
        transaction = request.match_info["transaction"]
        self.replies.setdefault(transaction, content["body"])
        await self._move()
        return web.json_response({"event_id": f"$reply-{transaction}"})

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get(f"{_API}/sync", self._sync),
            web.get(f"{_API}/rooms/{{room}}/joined_members", self._members),
            web.put(f"{_API}/rooms/{{room}}/typing/{{user}}", self._typing),
            web.put(f"{_API}/rooms/{{room}}/send/m.room.message/{{transaction}}", self._send),
        ]


@asynccontextmanager
async def homeserver() -> AsyncIterator[Homeserver]:
    """A server on a port of its own; its `url` is the client API's."""
    made = Homeserver()
    app = web.Application()
    app.add_routes(made._routes())
    # What its client gave up is over here too.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()
