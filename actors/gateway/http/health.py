"""`GET /health`, for anyone, and `GET /huginn/v1/status`, for those who operate."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import of_huginn
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.models import ServedModel
from protocol.errors import FaultError, Unavailable, WorkerFault
from protocol.messages import Empty
from protocol.messages.muninn import DomainMemo, MemoStatus
from protocol.messages.worker import Stats


async def health(request: web.Request) -> web.Response:
    """200 when requests are served, 503 while they are not yet."""
    gateway = request.app[GATEWAY]
    if not gateway.is_ready:
        loading = of_huginn(Unavailable("the service is loading: try again in a moment"))
        body = {"status": "loading", "version": gateway.version, "error": loading.body.error}
        return json_response(body, status=loading.status, headers=loading.headers)
    return json_response(
        {
            "status": "ok",
            "version": gateway.version,
            "models": [model.name for model in gateway.models],
        }
    )


async def status(request: web.Request) -> web.Response:
    """Every worker's counters and what the memo holds, or why that is not known."""
    gateway, caller = request.app[GATEWAY], request[CALLER]
    workers = [await _worker(caller, model) for model in gateway.models]
    return json_response(
        {
            "version": gateway.version,
            "ready": gateway.is_ready,
            "rooms": sorted(gateway.ports.room_to_key),
            "workers": workers,
            "muninn": await _muninn(caller),
        }
    )


async def _muninn(caller: Caller) -> dict[str, Any]:
    """The memo: how much is known in each domain, and how many invocations are quarantined."""
    try:
        memo = await caller.ask("muninn", "status", Empty(), MemoStatus, administer=True)
    except FaultError as error:
        return {
            "enabled": False,
            "domains": [],
            "quarantined": None,
            "conflicts": [],
            "counters": {},
            "error": error.message,
        }
    return {
        "enabled": memo.enabled,
        "domains": [
            {name: getattr(domain, name) for name in DomainMemo.__struct_fields__}
            for domain in memo.domains
        ],
        "quarantined": sum(domain.quarantined for domain in memo.domains),
        "conflicts": [
            {"domain": each.domain, "invocation": str(each.invocation)} for each in memo.quarantined
        ],
        "counters": memo.counters,
        "error": None,
    }


async def _worker(caller: Caller, model: ServedModel) -> dict[str, Any]:
    shown: dict[str, Any] = {"model": model.name, "profile": model.profile, "room": model.room}
    try:
        stats = await caller.ask(model.room, "stats", Empty(), Stats, administer=True)
    except (WorkerFault, Unavailable) as error:
        return shown | {"stats": None, "error": error.message}
    counters = {name: getattr(stats, name) for name in Stats.__struct_fields__}
    return shown | {"stats": counters | {"profile": str(stats.profile)}, "error": None}
