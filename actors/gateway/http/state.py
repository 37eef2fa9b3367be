"""What travels with an application or a request: typed keys, and who is asking."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.room import Gateway

GATEWAY: Final = web.AppKey("gateway", Gateway)
REQUEST_ID: Final = web.RequestKey("request_id", str)
CALLER: Final = web.RequestKey("caller", Caller)
# Requests that go on for as long as their client likes: a stop of the service ends them.
ENDLESS: Final = web.AppKey("endless", set[asyncio.Task[object]])
IGNORED: Final = web.RequestKey("ignored", tuple[str, ...])
