"""`POST /v1/responses`: a response is a turn of a session, and its id is where to go on from.

With `previous_response_id` the turn continues the one that this response answered, whichever it
is: going on from an earlier one branches. With a session (header `Huginn-Session`, or
`huginn.session`) it continues that session's newest turn. With neither, the response opens a
session of its own (persona `assistant`, every source that the caller may observe, from the
beginning of their logs). With `store` false it is no turn at all, and the input is everything.

`instructions` are for one response alone, as the API has it. They stand in front of the
conversation and are kept in no turn: a client that sends the same ones each time finds its whole
prefix again, and one that changes them has changed the prompt from its first block on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from actors.gateway.answers import Choice
from actors.gateway.courier import Errand, SessionTurn, carry
from actors.gateway.http.errors import unsupported
from actors.gateway.http.extension import (
    Extension,
    answering_model,
    context_headers,
    extension,
)
from actors.gateway.http.ids import fresh_id
from actors.gateway.http.parse import read_body
from actors.gateway.http.response_delivery import ResponseDelivery, deliver_response, usage_of
from actors.gateway.http.response_input import (
    ResponseRequest,
    input_blocks,
    instruction_blocks,
    response_ask,
)
from actors.gateway.http.response_object import RESPONSE, ResponseFields, note_of
from actors.gateway.http.session_turns import (
    KEY_HEADER,
    naming_session,
    settling,
    terms_of,
    turn_headers,
)
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.models import ServedModel
from actors.gateway.sessions import open_session
from actors.gateway.turns import Ask, Prompt, chat_prompt, jobs, settle
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import Generate

_NS_PER_S: Final = 10**9
_PPM: Final = 1_000_000


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer an input. The headers `Huginn-Session` and `Huginn-Turn` name where it is kept."""
    body = await read_body(request, ResponseRequest)
    more = extension(request, body.huginn, sessions=True)
    model = await answering_model(request, body.model, more.profile)
    ask = response_ask(body, model)
    asked = _Asked(request, body, more, model, ask, _fields(request, body, model, ask))
    given = input_blocks(body.input)
    before = instruction_blocks(body.instructions)
    if body.store is False:
        return await _unkept(asked, [*before, *given])
    return await _kept(asked, before, given)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, read and checked."""

    request: web.Request
    body: ResponseRequest
    more: Extension
    model: ServedModel
    ask: Ask
    fields: ResponseFields


async def _kept(asked: _Asked, before: list[NewBlock], given: list[NewBlock]) -> web.StreamResponse:
    """Answer as a turn of a session."""
    request, more, previous = asked.request, asked.more, asked.body.previous_response_id
    gateway, caller = request.app[GATEWAY], request[CALLER]
    session = more.session
    if session is None and previous is None:
        session = (await open_session(caller, more.namespace)).id

    def note(turn: SessionTurn, choice: Choice) -> bytes:
        usage = usage_of(caller, turn.prompt.tokens, choice)
        now_s = gateway.ports.clock.wall_ns() // _NS_PER_S
        return note_of(_of_turn(asked.fields, turn).ended(choice, usage, now_s))

    errand = Errand(
        namespace=more.namespace,
        response=asked.fields.id,
        session=session,
        parent_response=previous,
        input=given,
        before=before,
        key=request.headers.get(KEY_HEADER),
        terms=terms_of(asked.body, "input", more.profile),
        note=note,
    )
    with naming_session(previous):
        async with carry(gateway, caller, asked.model, errand) as turn:
            delivery = ResponseDelivery(
                gateway=gateway,
                caller=caller,
                model=asked.model,
                fields=_of_turn(asked.fields, turn),
                instructions=asked.body.instructions,
                job=_job(asked, turn.prompt),
                prompt_tokens=turn.prompt.tokens,
                receipt=more.receipt,
                headers=context_headers(turn.prompt) | turn_headers(turn),
                settle=settling(turn),
                items=turn.items,
            )
            stream = bool(asked.body.stream)
            return await deliver_response(request, delivery, stream=stream)


async def _unkept(asked: _Asked, blocks: list[NewBlock]) -> web.StreamResponse:
    """Answer as a chat without a session is: the input is everything, and nothing of it is a
    turn."""
    if asked.more.session is not None or asked.body.previous_response_id is not None:
        raise unsupported(
            "store",
            "a response that goes on from another, or in a session, is a turn of it and is kept; "
            "with store false send the whole conversation as input",
        )
    request, model, namespace = asked.request, asked.model, asked.more.namespace
    gateway, caller = request.app[GATEWAY], request[CALLER]
    prompt = await chat_prompt(caller, model, blocks, namespace, else_unstored=True)
    response = asked.fields.id

    async def settle_it(choices: list[Choice]) -> None:
        answer = "".join(choices[0].text)
        await settle(caller, model, prompt, namespace=namespace, response=response, answer=answer)

    delivery = ResponseDelivery(
        gateway=gateway,
        caller=caller,
        model=model,
        fields=msgspec.structs.replace(
            asked.fields, context=_context(prompt), unstored=prompt.unstored
        ),
        instructions=asked.body.instructions,
        job=_job(asked, prompt),
        prompt_tokens=prompt.tokens,
        receipt=asked.more.receipt,
        headers=context_headers(prompt),
        settle=settle_it,
    )
    return await deliver_response(request, delivery, stream=bool(asked.body.stream))


def _fields(
    request: web.Request, body: ResponseRequest, model: ServedModel, ask: Ask
) -> ResponseFields:
    ports = request.app[GATEWAY].ports
    return ResponseFields(
        id=fresh_id(RESPONSE, ports.entropy),
        created_at=ports.clock.wall_ns() // _NS_PER_S,
        model=model.name,
        temperature=ask.sampler.temperature_ppm / _PPM,
        top_p=ask.sampler.top_p_ppm / _PPM,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        store=body.store is not False,
        instructed=bool(body.instructions),
        metadata=body.metadata or {},
        max_output_tokens=body.max_output_tokens,
        previous_response_id=body.previous_response_id,
    )


def _of_turn(fields: ResponseFields, turn: SessionTurn) -> ResponseFields:
    return msgspec.structs.replace(
        fields,
        id=turn.response,
        session=turn.session,
        turn=turn.turn,
        context=_context(turn.prompt),
    )


def _job(asked: _Asked, prompt: Prompt) -> Generate:
    limits = asked.request.app[GATEWAY].limits
    return jobs(prompt, asked.ask, asked.model, asked.fields.id, limits)[0]


def _context(prompt: Prompt) -> str | None:
    return None if prompt.context is None else str(prompt.context)
