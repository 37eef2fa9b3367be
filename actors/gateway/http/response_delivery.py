"""Delivering a response: whole, or as its events in their documented order.

`response.created`, `in_progress`, `output_item.added`, `content_part.added`, `output_text.delta` …,
`output_text.done`, `content_part.done`, `output_item.done`, and `response.completed` (or
`incomplete`), each with a `sequence_number` from 0 on; there is no `[DONE]`. A fault in between is
an `error` event and then `response.failed`: it never looks like answer text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from actors.gateway.answers import Answers, Choice, Event, Items, collect
from actors.gateway.caller import Caller
from actors.gateway.http.answer import json_response
from actors.gateway.http.delivery import Settling
from actors.gateway.http.errors import of_huginn
from actors.gateway.http.receipt_json import receipt_json
from actors.gateway.http.response_object import (
    Json,
    ResponseFields,
    Usage,
    document,
    item_id,
    output_item,
    text_part,
)
from actors.gateway.http.sse import EventStream
from actors.gateway.models import ServedModel
from actors.gateway.room import Gateway
from protocol.errors import FaultError, HuginnError
from protocol.messages.worker import Generate, Item
from protocol.resource import Right

_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDelivery:
    """One response. `fields` as it begins; `job` makes its answer, `items` gives that job's items
    where they are not simply the worker's; `settle` is done after a complete answer."""

    gateway: Gateway
    caller: Caller
    model: ServedModel
    fields: ResponseFields
    instructions: str | None
    job: Generate
    prompt_tokens: int
    receipt: bool
    headers: dict[str, str]
    settle: Settling
    items: Items | None = None

    def ended(self, choice: Choice) -> ResponseFields:
        now_s = self.gateway.ports.clock.wall_ns() // _NS_PER_S
        usage = usage_of(self.caller, self.prompt_tokens, choice)
        return self.fields.ended(choice, usage, now_s)

    def shown(self, fields: ResponseFields, choice: Choice | None = None) -> Json:
        """The response object; with `choice`, complete."""
        receipt = None
        if choice is not None and self.receipt and choice.receipt is not None:
            receipt = receipt_json(choice.receipt) if self.caller.has(Right.TELEMETRY) else None
        text = None if choice is None else "".join(choice.text)
        return document(fields, text=text, instructions=self.instructions, receipt=receipt)


def usage_of(caller: Caller, prompt_tokens: int, choice: Choice) -> Usage:
    """The whole logical prompt; what of it was reused only for those who may know (AUT-7)."""
    cached = choice.reused_tokens if caller.has(Right.TELEMETRY) else 0
    return Usage(prompt_tokens, cached, choice.completion_tokens)


async def deliver_response(
    request: web.Request, delivery: ResponseDelivery, *, stream: bool
) -> web.StreamResponse:
    """Run the job and answer the request. Raises what the job raises, until a stream is open."""
    asked = (delivery.caller, delivery.model.room, [delivery.job], delivery.items)
    async with Answers(*asked) as answers:
        if stream:
            return await _deliver_stream(request, delivery, answers)
        choice = (await collect(answers, 1))[0]
    _settle(delivery, choice)
    return json_response(delivery.shown(delivery.ended(choice), choice), headers=delivery.headers)


async def _deliver_stream(
    request: web.Request, delivery: ResponseDelivery, answers: Answers
) -> web.StreamResponse:
    limits = delivery.gateway.limits
    first = await answers.next(limits.grace_ns / _NS_PER_S)
    if first is not None and isinstance(first.outcome, HuginnError):
        raise first.outcome
    stream = EventStream(delivery.headers, write_s=limits.write_ns_max / _NS_PER_S)
    await stream.open(request)
    events = ResponseEvents(delivery, stream)
    try:
        choice = await _relay(answers, events, first, limits.ping_ns / _NS_PER_S)
    except ConnectionError:
        # The client is gone, or does not read: there is nobody to tell.
        return stream.response
    except HuginnError as error:
        await events.fail(error)
        return stream.response
    except Exception:
        await events.fail(FaultError("the gateway failed while it told the answer"))
        raise
    _settle(delivery, choice)
    return stream.response


async def _relay(
    answers: Answers, events: ResponseEvents, first: Event | None, ping_s: float
) -> Choice:
    await events.begin()
    choice = Choice()
    event = first
    while choice.finish is None:
        if event is None:
            event = await answers.next(ping_s)
        if event is None:
            await events.ping()
            continue
        if isinstance(event.outcome, Item) and event.outcome.kind == "delta":
            await events.delta(event.outcome.text or "")
        choice.take(event.outcome)
        event = None
    await events.end(choice)
    return choice


class ResponseEvents:
    """The events of one streamed response, numbered as they are sent."""

    def __init__(self, delivery: ResponseDelivery, stream: EventStream) -> None:
        self._delivery = delivery
        self._stream = stream
        self._number = 0
        self._place: Json = {"output_index": 0}
        self._item: Json = {"item_id": item_id(delivery.fields.id), "content_index": 0}
        self._opened = False

    async def begin(self) -> None:
        shown = self._delivery.shown(self._delivery.fields)
        await self._send("response.created", response=shown)
        await self._send("response.in_progress", response=shown)

    async def delta(self, text: str) -> None:
        if not text:
            return
        await self._open()
        await self._text("response.output_text.delta", delta=text, logprobs=[])

    async def end(self, choice: Choice) -> None:
        await self._open()
        text = "".join(choice.text)
        fields = self._delivery.ended(choice)
        await self._text("response.output_text.done", text=text, logprobs=[])
        await self._text("response.content_part.done", part=text_part(text))
        item = output_item(fields, text)
        await self._send("response.output_item.done", item=item, **self._place)
        # `response.completed` or `response.incomplete`.
        shown = self._delivery.shown(fields, choice)
        await self._send(f"response.{fields.status}", response=shown)

    async def fail(self, error: HuginnError) -> None:
        """Tell a fault, to a client that may be gone."""
        said = of_huginn(error).body.error
        told = HuginnError(said.message)
        shown = document(
            self._delivery.fields.failed(), instructions=self._delivery.instructions, error=told
        )
        try:
            await self._send("error", code=said.code, message=said.message, param=said.param)
            await self._send("response.failed", response=shown)
        except ConnectionError:
            return

    async def ping(self) -> None:
        await self._stream.ping()

    async def _open(self) -> None:
        """What stands before the first text."""
        if self._opened:
            return
        self._opened = True
        item = output_item(self._delivery.fields, None)
        await self._send("response.output_item.added", item=item, **self._place)
        await self._text("response.content_part.added", part=text_part(""))

    async def _text(self, kind: str, **more: object) -> None:
        await self._send(kind, **self._item, **self._place, **more)

    async def _send(self, kind: str, **more: object) -> None:
        number, self._number = self._number, self._number + 1
        await self._stream.send({"type": kind, "sequence_number": number, **more}, kind)


def _settle(delivery: ResponseDelivery, choice: Choice) -> None:
    if delivery.gateway.limits.settle_answers:
        delivery.gateway.later(delivery.settle([choice]))
