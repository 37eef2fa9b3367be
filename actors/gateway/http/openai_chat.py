"""`POST /v1/chat/completions`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from actors.gateway.answers import Choice
from actors.gateway.courier import Errand, carry
from actors.gateway.http.delivery import Delivery, Json, Settling, deliver
from actors.gateway.http.errors import unsupported
from actors.gateway.http.extension import (
    Extension,
    answering_model,
    context_headers,
    extension,
)
from actors.gateway.http.ids import fresh_id
from actors.gateway.http.logprobs import chat_logprobs
from actors.gateway.http.parse import read_body
from actors.gateway.http.session_turns import (
    KEY_HEADER,
    naming_session,
    refuse_choices,
    refuse_logprobs,
    settling,
    terms_of,
    turn_headers,
)
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.http.terms import (
    CompletionFields,
    choices_of,
    logprobs_of,
    refuse_unimplemented,
    stops_of,
    tokens_max_of,
)
from actors.gateway.messages import Message, message_blocks
from actors.gateway.models import ServedModel
from actors.gateway.sampling import sampler_of
from actors.gateway.turns import Ask, Prompt, chat_prompt, jobs, settle
from protocol.errors import ContentError
from protocol.messages.events import Finish
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import Item

_ID: Final = "chatcmpl-"


class ChatRequest(CompletionFields, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: Any = None


class ChatDialect:
    """Chat completions. `logprobs`: whether they were asked for."""

    chunk = "chat.completion.chunk"
    whole = "chat.completion"

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs

    def opening(self, index: int) -> Json:
        return _part(index, {"role": "assistant", "content": ""})

    def delta(self, index: int, item: Item, before: Choice) -> Json | None:
        if not item.text and not (self._logprobs and item.logprobs):
            return None
        part = _part(index, {"content": item.text or ""})
        if self._logprobs:
            part["logprobs"] = chat_logprobs(item.logprobs or [])
        return part

    def finish(self, index: int, finish: Finish) -> Json:
        return _part(index, {}) | {"finish_reason": finish}

    def complete(self, index: int, choice: Choice) -> Json:
        message = {"role": "assistant", "content": "".join(choice.text), "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(choice.logprobs) if self._logprobs else None,
            "finish_reason": choice.finish,
        }


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer a conversation. Its context's id goes out in the header `Huginn-Context`.

    In a session (header `Huginn-Session`, or `huginn.session`) the messages are still the client's
    whole history: what happened meanwhile is put in, where it belongs, and the answer is kept
    before its end is told. The headers `Huginn-Session` and `Huginn-Turn` name where.
    """
    body = await read_body(request, ChatRequest)
    more = extension(request, body.huginn, sessions=True)
    model = await answering_model(request, body.model, more.profile)
    asked = _Asked(request, body, more, model, chat_ask(body, model))
    blocks = message_blocks(body.messages)
    if more.session is None:
        return await _alone(asked, blocks)
    refuse_choices(asked.ask.choices)
    key = request.headers.get(KEY_HEADER)
    if asked.ask.logprobs_top is not None:
        refuse_logprobs(key)
    gateway, caller = request.app[GATEWAY], request[CALLER]
    errand = Errand(
        namespace=more.namespace,
        response=fresh_id(_ID, gateway.ports.entropy),
        session=more.session,
        history=blocks,
        key=key,
        terms=terms_of(body, "messages", more.profile),
    )
    with naming_session():
        async with carry(gateway, caller, model, errand) as turn:
            plain = asked.delivery(turn.prompt, turn.response, settling(turn))
            headers = plain.headers | turn_headers(turn)
            delivery = replace(plain, items=turn.items, headers=headers)
            return await deliver(request, delivery, stream=bool(body.stream))


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, read and checked."""

    request: web.Request
    body: ChatRequest
    more: Extension
    model: ServedModel
    ask: Ask

    def delivery(self, prompt: Prompt, response: str, settle: Settling) -> Delivery:
        gateway, options = self.request.app[GATEWAY], self.body.stream_options
        return Delivery(
            gateway=gateway,
            caller=self.request[CALLER],
            model=self.model,
            response=response,
            jobs=jobs(prompt, self.ask, self.model, response, gateway.limits),
            prompt_tokens=prompt.tokens,
            firsts=[0],
            dialect=ChatDialect(logprobs=self.ask.logprobs_top is not None),
            include_usage=bool(options and options.include_usage),
            receipt=self.more.receipt,
            headers=context_headers(prompt),
            settle=settle,
            unstored=prompt.unstored,
        )


async def _alone(asked: _Asked, blocks: list[NewBlock]) -> web.StreamResponse:
    """Answer a conversation that is no turn of a session. A full disk does not keep it from that:
    then the answer says that its context is not stored, and names none."""
    request, model, namespace = asked.request, asked.model, asked.more.namespace
    gateway, caller = request.app[GATEWAY], request[CALLER]
    prompt = await chat_prompt(caller, model, blocks, namespace, else_unstored=True)
    response = fresh_id(_ID, gateway.ports.entropy)

    async def settle_first(choices: list[Choice]) -> None:
        answer = "".join(choices[0].text)
        await settle(caller, model, prompt, namespace=namespace, response=response, answer=answer)

    delivery = asked.delivery(prompt, response, settle_first)
    return await deliver(request, delivery, stream=bool(asked.body.stream))


def chat_ask(body: ChatRequest, model: ServedModel) -> Ask:
    """How the conversation is to be answered. Raises ContentError or ApiError, with the name of
    the parameter, for a value that is out of range or not implemented."""
    refuse_unimplemented(body)
    if body.audio is not None or set(body.modalities or ["text"]) != {"text"}:
        raise unsupported("modalities", "the model answers in text alone")
    tokens_max = tokens_max_of("max_completion_tokens", body.max_completion_tokens)
    if tokens_max is None:
        tokens_max = tokens_max_of("max_tokens", body.max_tokens)
    return Ask(
        sampler=sampler_of(body, model.tokenizer, temperature_default=model.temperature_default),
        stops=stops_of(body.stop),
        choices=choices_of(body.n),
        tokens_max=tokens_max,
        logprobs_top=_logprobs(body),
        deliver_trim=True,
    )


def _logprobs(body: ChatRequest) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise ContentError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return logprobs_of("top_logprobs", body.top_logprobs or 0) if body.logprobs else None


def _part(index: int, delta: Json) -> Json:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
