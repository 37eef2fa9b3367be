"""`/huginn/v1/ledgers`: what was asked for, and what it took (AUT-6).

The logical ledger shows a key its own charge; one that administers, everybody's. It is the same for
a hit and a miss, so it tells nobody what was warm. The physical one is for those who administer.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.state import CALLER, GATEWAY
from protocol.errors import AuthorityError, FaultError
from protocol.messages import Empty
from protocol.messages.authority import Principals
from protocol.messages.muninn import Account, MemoStatus
from protocol.messages.worker import Charge, Charges, PhysicalUse

Json = dict[str, Any]
_AUTHORITY: Final = "authority"
_MUNINN: Final = "muninn"


async def show_logical(request: web.Request) -> web.Response:
    """Answers, prompt and answer tokens, and derivations that were looked for: of the caller, or of
    every principal. `principal` is null for one that is not enrolled any more."""
    caller, rooms = request[CALLER], _workers(request)
    if not caller.administers:
        rows = [await caller.ask(room, "charge", Empty(), Charge) for room in rooms]
        looked = {rows[0].principal: await _looked(caller)} if rows else {}
        return json_response(
            _listed(rows, looked, {row.principal: caller.principal for row in rows})
        )
    rows = []
    for room in rooms:
        rows += (await caller.ask(room, "charges", Empty(), Charges, administer=True)).rows
    enrolled = await caller.ask(_AUTHORITY, "principals", Empty(), Principals, administer=True)
    names = {row.public_key: row.name for row in enrolled.principals}
    return json_response(_listed(rows, await _all_looked(caller), names))


async def show_physical(request: web.Request) -> web.Response:
    """What each profile used: nanoseconds of processor and device, bytes read and written, and what
    was resident times the seconds that it was."""
    caller = request[CALLER]
    if not caller.administers:
        raise AuthorityError("right", f"{caller.principal} does not administer")
    data = []
    for room in _workers(request):
        use = await caller.ask(room, "use", Empty(), PhysicalUse, administer=True)
        data.append({"profile_id": str(use.profile), "room": room, **use.used})
    return json_response({"object": "list", "data": data})


def _workers(request: web.Request) -> list[str]:
    return sorted({model.room for model in request.app[GATEWAY].models})


async def _looked(caller: Caller) -> int:
    try:
        return (await caller.ask(_MUNINN, "charge", Empty(), Account)).derivations
    except FaultError:
        # Without a memo nobody looks, and nothing is charged.
        return 0


async def _all_looked(caller: Caller) -> dict[bytes, int]:
    try:
        memo = await caller.ask(_MUNINN, "status", Empty(), MemoStatus, administer=True)
    except FaultError:
        return {}
    return {each.principal: each.derivations for each in memo.accounts}


def _listed(rows: list[Charge], looked: dict[bytes, int], names: dict[bytes, str]) -> Json:
    keys = sorted({row.principal for row in rows} | set(looked), key=lambda k: names.get(k, "~"))
    return {"object": "list", "data": [_json(key, rows, looked, names) for key in keys]}


def _json(
    key: bytes, rows: list[Charge], looked: dict[bytes, int], names: dict[bytes, str]
) -> Json:
    mine = [row for row in rows if row.principal == key]
    return {
        "principal": names.get(key),
        "public_key": key.hex(),
        "answers": sum(row.answers for row in mine),
        "prompt_tokens": sum(row.prompt_tokens for row in mine),
        "answer_tokens": sum(row.answer_tokens for row in mine),
        "derivations": looked.get(key, 0),
    }
