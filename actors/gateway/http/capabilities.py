"""`/huginn/v1/capabilities`: handles that a principal gives out below its own.

Anybody with a key may. A handle is narrower than its giver's in everything or as wide, it can be
made offline as well (`huginn key attenuate`), and one whose audience is this gateway is shown in
place of an API key: `Authorization: Bearer hgh-…`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import one_answer
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER, GATEWAY
from protocol.capability import decode_link
from protocol.caveats import Caveat, OperationCaveat, ProfileCaveat, ServiceCaveat
from protocol.errors import AuthorityError, CapabilityError, ContentError, NotVisible, RecordError
from protocol.handle_text import decode_handle, encode_handle
from protocol.ids import CapabilityId
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.messages import Empty
from protocol.messages.authority import HandedOut, HandedRow, HandOut, TakeBack, TakenBack
from protocol.resource import Resource, ResourceKind, Right

_AUTHORITY: Final = "authority"
_NS_PER_S: Final = 10**9
_LIFETIME_S_MAX: Final = CAPABILITY_LIFETIME_NS_MAX // _NS_PER_S


class HandleRequest(msgspec.Struct, kw_only=True):
    """What to give out. `audience`: a public key in hexadecimal digits, by default this gateway's;
    what else is left out is as the giver has it."""

    lifetime_s: int
    audience: str | None = None
    namespace: str | None = None
    rights: list[str] | None = None
    services: list[str] | None = None
    operations: list[str] | None = None
    profiles: list[str] | None = None


class WholeHandle(msgspec.Struct, kw_only=True):
    handle: str


async def give_out(request: web.Request) -> web.Response:
    """Make a handle below the caller's, and put it on record."""
    gateway, caller = request.app[GATEWAY], request[CALLER]
    ask = await read_body(request, HandleRequest)
    if not 0 < ask.lifetime_s <= _LIFETIME_S_MAX:
        raise ContentError(f"lifetime_s goes from 1 to {_LIFETIME_S_MAX}", param="lifetime_s")
    audience = gateway.ports.room_to_key["gateway"]
    try:
        if ask.audience is not None:
            audience = bytes.fromhex(ask.audience)
        chain = caller.give_out(
            audience,
            exp_ns=gateway.ports.clock.wall_ns() + ask.lifetime_s * _NS_PER_S,
            resource=None
            if ask.namespace is None
            else Resource(kind=ResourceKind.NAMESPACE, name=ask.namespace),
            rights=None if ask.rights is None else [Right(name) for name in ask.rights],
            caveats=_caveats(ask),
        )
    except CapabilityError as error:
        if not error.step.startswith("attenuation"):
            raise ContentError(error.message) from error
        raise AuthorityError(error.step, error.message) from error
    except (ValueError, RecordError) as error:
        raise ContentError(f"no such handle can be made: {error}") from error
    made = await caller.ask(_AUTHORITY, "hand_out", HandOut(chain=list(chain)), HandedRow)
    return json_response({"handle": encode_handle(chain), **_json(made)})


async def list_handles(request: web.Request) -> web.Response:
    """The handles on record below the caller's, without the handles themselves."""
    found = await request[CALLER].ask(_AUTHORITY, "handed_out", Empty(), HandedOut)
    return json_response({"object": "list", "data": [_json(row) for row in found.handles]})


async def show_own(request: web.Request) -> web.Response:
    """The caller's own handle, and the key that a handle for this gateway names."""
    gateway, chain = request.app[GATEWAY], request[CALLER].chain
    leaf = decode_link(chain[-1]).capability
    return json_response(
        {
            "handle": encode_handle(chain),
            "gateway_key": gateway.ports.room_to_key["gateway"].hex(),
            "resource": str(leaf.res),
            "rights": [right.value for right in leaf.rights],
            "expires_s": leaf.exp_ns // _NS_PER_S,
        }
    )


async def take_back(request: web.Request) -> web.Response:
    """Revoke a handle that is on record, and all below it."""
    with one_answer():
        try:
            ask = TakeBack(id=CapabilityId.parse(request.match_info["id"]))
        except ContentError as error:
            raise NotVisible("not the id of a handle") from error
        return await _taken_back(request, ask)


async def take_back_whole(request: web.Request) -> web.Response:
    """Revoke a handle that is on no record."""
    body = await read_body(request, WholeHandle)
    try:
        chain = decode_handle(body.handle)
    except CapabilityError as error:
        raise ContentError(error.message, param="handle") from error
    return await _taken_back(request, TakeBack(chain=list(chain)))


async def _taken_back(request: web.Request, ask: TakeBack) -> web.Response:
    done = await request[CALLER].ask(_AUTHORITY, "take_back", ask, TakenBack)
    waiting = done.waiting or []
    return json_response({"id": str(done.id), "revoked": True, "rooms_waiting": waiting})


def _caveats(ask: HandleRequest) -> list[Caveat]:
    made: list[Caveat] = []
    if ask.services is not None:
        made.append(ServiceCaveat(names=tuple(sorted(set(ask.services)))))
    if ask.operations is not None:
        made.append(OperationCaveat(names=tuple(sorted(set(ask.operations)))))
    if ask.profiles is not None:
        made.append(ProfileCaveat(names=tuple(sorted(set(ask.profiles)))))
    return made


def _json(row: HandedRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "audience": row.audience.hex(),
        "resource": row.resource,
        "rights": row.rights,
        "expires_s": row.exp_ns // _NS_PER_S,
        "links": row.links,
        "revoked": row.revoked,
    }
