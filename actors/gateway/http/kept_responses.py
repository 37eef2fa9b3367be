"""Responses that were given: show one, list its input, forget it.

What a response is made of lies where it belongs: which turn it is and its parameters in the events
room, its texts in the ropes room. One that is unknown, somebody else's, forgotten, or was never
finished is one answer.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import ApiError, one_answer, unsupported
from actors.gateway.http.extension import extension
from actors.gateway.http.parse import query_integer
from actors.gateway.http.response_object import (
    Json,
    ResponseFields,
    document,
    fields_of,
    text_part,
)
from actors.gateway.http.state import CALLER
from actors.gateway.sessions import ask_events
from actors.gateway.turns import ASSEMBLER
from protocol.blocks import BlockType, Role
from protocol.errors import ContentError, NotVisible
from protocol.ids import ContextId
from protocol.messages import Empty
from protocol.messages.assembler import Show, Shown
from protocol.messages.events import AskResponse, ResponseRow
from protocol.messages.ropes import NewBlock, ReadSequence, SequenceBlocks
from protocol.resource import Right

ITEMS_DEFAULT: Final = 20
ITEMS_MAX: Final = 100


async def show_response(request: web.Request) -> web.Response:
    """`GET /v1/responses/{id}`: the response as it was given."""
    if request.query.get("stream", "").lower() in ("1", "true"):
        raise unsupported("stream", "a response is streamed once, while it is made")
    caller = request[CALLER]
    with one_answer():
        row, fields = await _kept(request)
        text = await _answer(caller, row)
        instructions = None
        if fields.instructed:
            instructions = _text((await _prompt(caller, fields))[0])
    telemetry = caller.has(Right.TELEMETRY)
    return json_response(
        document(fields, text=text, instructions=instructions, telemetry=telemetry)
    )


async def list_input(request: web.Request) -> web.Response:
    """`GET /v1/responses/{id}/input_items`: the whole conversation that was answered, newest first
    unless `order=asc`. Instructions and reminders of events are no items of it."""
    limit, ascending = _paging(request)
    with one_answer():
        _, fields = await _kept(request)
        blocks = await _prompt(request[CALLER], fields)
    if fields.instructed:
        blocks = blocks[1:]
    said = [new for new in blocks if new.block.type is not BlockType.EVENT_REMINDER]
    items = [_item(new, f"item_{index}") for index, new in enumerate(said)]
    if not ascending:
        items.reverse()
    after = request.query.get("after")
    if after is not None:
        places = [index for index, item in enumerate(items) if item["id"] == after]
        if not places:
            raise ContentError(f"after: there is no item {after!r:.80}", param="after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > limit,
        }
    )


async def delete_response(request: web.Request) -> web.Response:
    """`DELETE /v1/responses/{id}`: forget the response. The turn stays in its session, as other
    turns build on it; nothing finds it by this id any more."""
    response = request.match_info["id"]
    ask = AskResponse(namespace=extension(request, None).namespace, response=response)
    with one_answer():
        await ask_events(request[CALLER], "forget_response", ask, Empty)
    return json_response({"id": response, "object": "response", "deleted": True})


async def cancel_response(request: web.Request) -> web.Response:
    """`POST /v1/responses/{id}/cancel`: there is nothing that this could stop."""
    raise ApiError(
        400,
        "Only a background response can be cancelled, and none is made here: close the connection "
        "of a response to stop it.",
        code="unsupported",
    )


async def _kept(request: web.Request) -> tuple[ResponseRow, ResponseFields]:
    ask = AskResponse(
        namespace=extension(request, None).namespace, response=request.match_info["id"]
    )
    row = await ask_events(request[CALLER], "response", ask, ResponseRow)
    if row.note is None:
        raise NotVisible("this turn was answered in another dialect: it is no response")
    try:
        return row, fields_of(row.note)
    except msgspec.MsgspecError as error:
        raise NotVisible("the note of this turn is of another version") from error


async def _answer(caller: Caller, row: ResponseRow) -> str:
    """The text of the answer, which is the last block of its turn's sequence."""
    if row.turn.sequence is None:
        raise NotVisible("the turn keeps no sequence")
    ask = ReadSequence(sequence=row.turn.sequence, start=0)
    read = await caller.ask("ropes", "read", ask, SequenceBlocks)
    return _text(read.blocks[-1])


async def _prompt(caller: Caller, fields: ResponseFields) -> list[NewBlock]:
    """The blocks that were answered."""
    if fields.context is None:
        raise NotVisible("the response has no context")
    ask = Show(context=ContextId.parse(fields.context), tokens=False)
    return (await caller.ask(ASSEMBLER, "show", ask, Shown, delegate=("ropes",))).blocks


def _paging(request: web.Request) -> tuple[int, bool]:
    """How many items, and whether oldest first."""
    limit = query_integer(request, "limit", ITEMS_DEFAULT, 1, ITEMS_MAX)
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ContentError("order is asc or desc", param="order")
    return limit, order == "asc"


def _text(new: NewBlock) -> str:
    return new.content.decode("utf-8", "replace")


def _item(new: NewBlock, id: str) -> Json:
    block, text = new.block, _text(new)
    shown: Json = {"id": id, "status": "completed"}
    if block.type is BlockType.TOOL_CALL:
        name, call = block.rendering.get("tool", ""), block.rendering.get("call", "")
        return shown | {
            "type": "function_call",
            "name": name,
            "call_id": call,
            "arguments": text,
        }
    if block.role is Role.TOOL:
        call = block.rendering.get("call", "")
        return shown | {"type": "function_call_output", "call_id": call, "output": text}
    if block.role is Role.MODEL:
        part: Json = text_part(text)
        role = "assistant"
    else:
        part = {"type": "input_text", "text": text}
        role = "system" if block.role is Role.SYSTEM else "user"
    return shown | {"type": "message", "role": role, "content": [part]}
