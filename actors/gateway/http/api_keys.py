"""`/huginn/v1/keys`: who may come in. For those who administer.

A key is shown once, in the answer that makes it; what is kept is its hash, and the handle that the
authority gives to the signing key that the API key derives.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.keys import KEY_ENTROPY_BYTES, KeyRow, mint_key
from actors.gateway.room import Gateway
from protocol.errors import ContentError
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.messages import Empty
from protocol.messages.authority import (
    Enroll,
    Enrolled,
    Principals,
    Revoke,
    Revoked,
)
from protocol.resource import Right
from protocol.signing import Signer, principal_seed

_AUTHORITY: Final = "authority"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NS_PER_S: Final = 10**9
# What a principal works with. Not telemetry: it shows what is warm; not erase: it cannot be undone.
RIGHTS_DEFAULT: Final = (
    Right.ADVANCE,
    Right.ASSEMBLE,
    Right.COMPILE,
    Right.EMIT,
    Right.GENERATE,
    Right.OBSERVE,
    Right.READ,
    Right.WRITE,
)


class KeyRequest(msgspec.Struct, kw_only=True):
    """`namespace` and `domain` default to ones of the principal's own, `profiles` to those that
    are served, `lifetime_s` to the longest there is (366 days)."""

    principal: str
    namespace: str | None = None
    domain: str | None = None
    rights: list[str] | None = None
    profiles: list[str] | None = None
    lifetime_s: int | None = None


async def create_key(request: web.Request) -> web.Response:
    """Make a principal and its key. 409 for a name that another key has."""
    gateway, caller = request.app[GATEWAY], request[CALLER]
    ask = await read_body(request, KeyRequest)
    if not _NAME.fullmatch(ask.principal):
        raise ContentError(
            "principal is 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit",
            param="principal",
        )
    minted = mint_key(gateway.ports.entropy.draw(KEY_ENTROPY_BYTES))
    key = gateway.keys.untold(ask.principal) or minted
    row = await _enrolled(gateway, caller, ask, key)
    gateway.keys.add(key, row)
    return json_response(
        {
            "key": key,
            "principal": row.principal,
            "namespace": row.namespace,
            "domain": row.domain,
            "rights": _rights(ask),
        }
    )


async def list_keys(request: web.Request) -> web.Response:
    """The principals, never their keys."""
    found = await request[CALLER].ask(
        _AUTHORITY, "principals", Empty(), Principals, administer=True
    )
    rows = [
        {
            "principal": row.name,
            "namespace": row.namespace,
            "domain": row.domain,
            "rights": row.rights,
            "revoked": row.revoked,
        }
        for row in found.principals
    ]
    return json_response({"object": "list", "data": rows})


async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a principal: every handle of its falls, and its key is forgotten."""
    name = request.match_info["principal"]
    # The authority first: whatever happens after it, the key is worth nothing.
    ask = Revoke(name=name)
    done = await request[CALLER].ask(_AUTHORITY, "revoke", ask, Revoked, administer=True)
    removed = request.app[GATEWAY].keys.remove(name)
    waiting = done.waiting or []
    return json_response({"principal": name, "keys_removed": removed, "rooms_waiting": waiting})


async def _enrolled(gateway: Gateway, caller: Caller, ask: KeyRequest, key: str) -> KeyRow:
    lifetime_ns = CAPABILITY_LIFETIME_NS_MAX
    if ask.lifetime_s is not None:
        lifetime_ns = ask.lifetime_s * _NS_PER_S
        if not 0 < lifetime_ns <= CAPABILITY_LIFETIME_NS_MAX:
            longest = CAPABILITY_LIFETIME_NS_MAX // _NS_PER_S
            raise ContentError(f"lifetime_s goes from 1 to {longest}", param="lifetime_s")
    profiles = ask.profiles
    if profiles is None:
        profiles = sorted({model.profile for model in gateway.models})
    enroll = Enroll(
        name=ask.principal,
        public_key=Signer(principal_seed(key)).public,
        namespace=ask.namespace or f"home/{ask.principal}",
        domain=ask.domain or ask.principal,
        rights=_rights(ask),
        profiles=profiles,
        administers=False,
        lifetime_ns=lifetime_ns,
    )
    made = await caller.ask(_AUTHORITY, "enroll", enroll, Enrolled, administer=True)
    return KeyRow.granted(enroll, made, gateway.ports.clock.wall_ns() // _NS_PER_S)


def _rights(ask: KeyRequest) -> list[str]:
    if ask.rights is None:
        return [right.value for right in RIGHTS_DEFAULT]
    return sorted(set(ask.rights))
