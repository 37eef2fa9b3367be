"""`/huginn/v1/publications`: what is public. For those who administer.

A published block is the one that a chat with this very message has: whoever's conversation begins
with public blocks shares their prefix states, and nothing else of it. Publishing shows nobody the
content, and a block that nobody published is answered like one that does not exist.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER
from actors.gateway.messages import Message, message_blocks
from protocol.errors import AuthorityError, ContentError, NotVisible
from protocol.ids import BlockId
from protocol.messages import Empty
from protocol.messages.ropes import Publication, Publications, Publish, Withdraw

_ROPES: Final = "ropes"


async def publish(request: web.Request) -> web.Response:
    """Make the block of one message public. Again is once."""
    caller = _administrator(request)
    blocks = message_blocks([await read_body(request, Message)])
    if len(blocks) != 1:
        raise ContentError("one block is published at a time: leave tool_calls out", param="role")
    ask = Publish(block=blocks[0].block, content=blocks[0].content)
    made = await caller.ask(_ROPES, "publish", ask, Publication, administer=True)
    return json_response(_json(made))


async def list_publications(request: web.Request) -> web.Response:
    """Every public block, without its content."""
    found = await _administrator(request).ask(
        _ROPES, "publications", Empty(), Publications, administer=True
    )
    return json_response({"object": "list", "data": [_json(row) for row in found.blocks]})


async def withdraw(request: web.Request) -> web.Response:
    """Make a block private again. Answered when its public states are gone."""
    caller = _administrator(request)
    try:
        block = BlockId.parse(request.match_info["block"])
    except ContentError as error:
        raise NotVisible("not a block id") from error
    gone = await caller.ask(_ROPES, "withdraw", Withdraw(block=block), Publication, administer=True)
    return json_response(_json(gone))


def _administrator(request: web.Request) -> Caller:
    """The caller, if it administers; the ropes room asks for itself. Before the request is looked
    at, so that nobody else is told what is wrong with it."""
    caller = request[CALLER]
    if not caller.administers:
        raise AuthorityError("right", f"{caller.principal} does not administer")
    return caller


def _json(row: Publication) -> dict[str, Any]:
    return {
        "block_id": str(row.block),
        "role": row.role,
        "type": row.type,
        "name": row.name,
        "content_bytes": row.content_bytes,
    }
