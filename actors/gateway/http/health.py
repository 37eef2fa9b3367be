"""`GET /health`, for anyone, and `GET /huginn/v1/status`, for those who operate."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import of_huginn
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.models import ServedModel
from actors.gateway.space import REASON
from protocol.errors import FaultError, Unavailable, WorkerFault
from protocol.messages import Empty
from protocol.messages.events import EventsStatus
from protocol.messages.muninn import DomainMemo, MemoStatus, Quarantined
from protocol.messages.worker import Stats


async def health(request: web.Request) -> web.Response:
    """200 when requests are served, 503 while they are not yet. `degraded`, with the reason, while
    those that have something to keep are not, because the disk is full."""
    gateway = request.app[GATEWAY]
    if not gateway.is_ready:
        loading = of_huginn(Unavailable("the service is loading: try again in a moment"))
        body = {"status": "loading", "version": gateway.version, "error": loading.body.error}
        return json_response(body, status=loading.status, headers=loading.headers)
    degraded = gateway.ports.space.is_full
    return json_response(
        {
            "status": "degraded" if degraded else "ok",
            "version": gateway.version,
            "models": [model.name for model in gateway.models],
            **({"reason": REASON, "code": "disk_full"} if degraded else {}),
        }
    )


async def status(request: web.Request) -> web.Response:
    """Every worker's counters, what the memo holds and what events there were, or why that is not
    known."""
    gateway, caller = request.app[GATEWAY], request[CALLER]
    workers = [await _worker(caller, model) for model in gateway.models]
    return json_response(
        {
            "version": gateway.version,
            "ready": gateway.is_ready,
            "rooms": sorted(gateway.ports.room_to_key),
            "workers": workers,
            "muninn": await _muninn(caller),
            "events": await _events(caller),
        }
    )


async def _events(caller: Caller) -> dict[str, Any]:
    """Sources, sessions, and the counters of both: what was told, dropped, and seen as a gap."""
    try:
        found = await caller.ask("events", "status", Empty(), EventsStatus, administer=True)
    except FaultError as error:
        nothing = dict.fromkeys(("sources", "sessions", "subscribers"))
        return {**nothing, "counters": {}, "error": error.message}
    return {
        "sources": found.sources,
        "sessions": found.sessions,
        "subscribers": found.subscribers,
        "counters": found.counters,
        "error": None,
    }


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
            "asked": {},
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
        "conflicts": [_conflict(each) for each in memo.quarantined],
        "asked": {each.principal.hex(): each.derivations for each in memo.accounts},
        "counters": memo.counters,
        "error": None,
    }


def _conflict(each: Quarantined) -> dict[str, Any]:
    """A quarantined invocation, and who said what of it."""
    return {
        "domain": each.domain,
        "invocation": str(each.invocation),
        "testimonies": [
            {
                "evidence_id": str(said.evidence),
                "engine_build": said.engine_build,
                "executor": said.executor.hex(),
                "outputs": [{"label": output.label, "id": output.id} for output in said.outputs],
            }
            for said in each.testimonies
        ],
    }


async def _worker(caller: Caller, model: ServedModel) -> dict[str, Any]:
    shown: dict[str, Any] = {"model": model.name, "profile": model.profile, "room": model.room}
    try:
        stats = await caller.ask(model.room, "stats", Empty(), Stats, administer=True)
    except (WorkerFault, Unavailable) as error:
        return shown | {"stats": None, "error": error.message}
    counters = {name: getattr(stats, name) for name in Stats.__struct_fields__}
    return shown | {"stats": counters | {"profile": str(stats.profile)}, "error": None}
