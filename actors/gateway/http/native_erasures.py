"""`/huginn/v1/erasures` and `/huginn/v1/retention`: what is forgotten, and when.

Who administers may erase anything; a principal with the right `erase`, what is its own. An erasure
is answered when every room has done it (200), or when one could not be reached and will be asked
until it can (202).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER
from protocol.messages import Empty
from protocol.messages.erasure import (
    AskErasure,
    ErasureRow,
    Erasures,
    Policy,
    RequestErasure,
    Retention,
    Retentions,
    Target,
)

_AUTHORITY: Final = "authority"
_NS_PER_S: Final = 10**9
_ACCEPTED: Final = 202


class ErasureRequest(msgspec.Struct, kw_only=True):
    """`namespace`: where an object is erased; by default where the caller works."""

    target: Target
    name: str
    namespace: str | None = None


class RetentionRequest(msgspec.Struct, kw_only=True):
    """`seconds` goes with `bounded`."""

    policy: Policy
    seconds: int = 0


async def erase(request: web.Request) -> web.Response:
    """Erase an object, a namespace, a principal or a domain."""
    caller = request[CALLER]
    body = await read_body(request, ErasureRequest)
    namespace = body.namespace
    if body.target == "object" and namespace is None:
        namespace = caller.namespace
    ask = RequestErasure(target=body.target, name=body.name, namespace=namespace)
    row = await caller.ask(
        _AUTHORITY, "request_erasure", ask, ErasureRow, administer=caller.administers
    )
    return json_response(_json(row), status=200 if row.done_ns is not None else _ACCEPTED)


async def list_erasures(request: web.Request) -> web.Response:
    """The erasures that the caller might have asked for."""
    caller = request[CALLER]
    found = await caller.ask(
        _AUTHORITY, "erasures", Empty(), Erasures, administer=caller.administers
    )
    return json_response({"object": "list", "data": [_json(row) for row in found.erasures]})


async def show_erasure(request: web.Request) -> web.Response:
    """One erasure: what is done, and what it waits for."""
    caller = request[CALLER]
    ask = AskErasure(id=request.match_info["id"])
    row = await caller.ask(_AUTHORITY, "erasure", ask, ErasureRow, administer=caller.administers)
    return json_response(_json(row))


async def set_retention(request: web.Request) -> web.Response:
    """Say how long what was computed for a domain is kept after its last revocation."""
    body = await read_body(request, RetentionRequest)
    domain = request.match_info["domain"]
    ask = Retention(domain=domain, policy=body.policy, seconds=body.seconds)
    kept = await request[CALLER].ask(_AUTHORITY, "set_retention", ask, Retention, administer=True)
    return json_response(_policy(kept))


async def list_retention(request: web.Request) -> web.Response:
    """What was set, and what holds for all others."""
    found = await request[CALLER].ask(
        _AUTHORITY, "retentions", Empty(), Retentions, administer=True
    )
    return json_response(
        {
            "object": "list",
            "standard": _policy(found.standard),
            "data": [_policy(each) for each in found.domains],
        }
    )


def _policy(retention: Retention) -> dict[str, Any]:
    return {
        "domain": retention.domain,
        "policy": retention.policy,
        "seconds": retention.seconds,
    }


def _json(row: ErasureRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "target": row.target,
        "name": row.name,
        "cause": row.cause,
        "state": "open" if row.done_ns is None else "done",
        "asked_s": row.asked_ns // _NS_PER_S,
        "due_s": row.due_ns // _NS_PER_S,
        "done_s": None if row.done_ns is None else row.done_ns // _NS_PER_S,
        "rooms": {done.room: done.counts for done in row.rooms},
        "waits": row.waits,
    }
