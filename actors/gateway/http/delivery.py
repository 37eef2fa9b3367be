"""Delivering answers: whole or as a stream, in whichever dialect.

The order of a stream is fixed. The worker may refuse within the grace time, and then the answer is
a plain error with its status; after that the headers go out with each choice's opening, before any
prefill is done. Then deltas; for each choice a finish chunk; the usage chunk, if asked for; then
`[DONE]`, once. A fault in between is an error event and the end: it never looks like answer text.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from actors.gateway.answers import Answers, Choice, Event, Items, collect
from actors.gateway.caller import Caller
from actors.gateway.http.errors import of_fault, of_huginn
from actors.gateway.http.extension import UNSTORED
from actors.gateway.http.receipt_json import receipt_json
from actors.gateway.http.sse import EventStream
from actors.gateway.models import ServedModel
from actors.gateway.room import Gateway
from protocol.errors import HuginnError
from protocol.messages.events import Finish
from protocol.messages.worker import Generate, Item
from protocol.resource import Right

_NS_PER_S: Final = 10**9
Json = dict[str, Any]
Settling = Callable[[list[Choice]], Coroutine[Any, Any, None]]


class Dialect(Protocol):
    """How choices are written. `chunk` and `whole` name the two objects in `object` fields."""

    chunk: str
    whole: str

    def opening(self, index: int) -> Json | None:
        """The first chunk of a choice, sent before any token; None: there is none."""

    def delta(self, index: int, item: Item, before: Choice) -> Json | None:
        """A chunk with new text; None: nothing to send yet. `before`: what was sent so far."""

    def finish(self, index: int, finish: Finish) -> Json:
        """The last chunk of a choice."""

    def complete(self, index: int, choice: Choice) -> Json:
        """A choice as it stands in a whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One response. `firsts` are the choices that are the first of their prompt: each prompt's
    reuse is counted once. `settle` is done after a complete answer, off the caller's path. `items`
    gives the items of a job where they are not simply the worker's: a session's turn is kept before
    its last item comes. `unstored`: the disk had no room for the context."""

    gateway: Gateway
    caller: Caller
    model: ServedModel
    response: str
    jobs: list[Generate]
    prompt_tokens: int
    firsts: list[int]
    dialect: Dialect
    include_usage: bool
    receipt: bool
    headers: dict[str, str]
    settle: Settling
    items: Items | None = None
    unstored: bool = False

    def frame(self, kind: str, choices: list[Json]) -> Json:
        """What every chunk and every answer has in common."""
        return {
            "id": self.response,
            "object": kind,
            "created": self.gateway.ports.clock.wall_ns() // _NS_PER_S,
            "model": self.model.name,
            "system_fingerprint": str(self.model.info.profile),
            "choices": choices,
        }

    def usage(self, choices: list[Choice]) -> Json:
        """The whole logical prompt always; what was reused only for those who may know (AUT-7)."""
        completion = sum(choice.completion_tokens for choice in choices)
        cached = 0
        if self.caller.has(Right.TELEMETRY):
            cached = sum(choices[index].reused_tokens for index in self.firsts)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def extra(self, choice: Choice) -> Json:
        """The field `huginn` of an answer: that its context is not stored, if so, and a receipt,
        where one was asked for by one who may see it."""
        huginn: Json = dict(UNSTORED) if self.unstored else {}
        if self.receipt and choice.receipt is not None and self.caller.has(Right.TELEMETRY):
            huginn["receipt"] = receipt_json(choice.receipt)
        return {"huginn": huginn} if huginn else {}


async def deliver(request: web.Request, delivery: Delivery, *, stream: bool) -> web.StreamResponse:
    """Run the jobs and answer the request. Raises what a job raises, until a stream is open."""
    asked = (delivery.caller, delivery.model.room, delivery.jobs, delivery.items)
    async with Answers(*asked) as answers:
        if stream:
            return await _deliver_stream(request, delivery, answers)
        choices = await collect(answers, len(delivery.jobs))
    _settle(delivery, choices)
    body = delivery.frame(
        delivery.dialect.whole,
        [delivery.dialect.complete(index, choice) for index, choice in enumerate(choices)],
    )
    body |= {"usage": delivery.usage(choices), **delivery.extra(choices[0])}
    return web.Response(
        body=msgspec.json.encode(body), content_type="application/json", headers=delivery.headers
    )


async def _deliver_stream(
    request: web.Request, delivery: Delivery, answers: Answers
) -> web.StreamResponse:
    limits = delivery.gateway.limits
    first = await answers.next(limits.grace_ns / _NS_PER_S)
    if first is not None and isinstance(first.outcome, HuginnError):
        raise first.outcome
    stream = EventStream(delivery.headers, write_s=limits.write_ns_max / _NS_PER_S)
    await stream.open(request)
    try:
        choices = await _relay(delivery, answers, stream, first)
    except ConnectionError:
        # The client is gone, or does not read: there is nobody to tell.
        return stream.response
    except HuginnError as error:
        await _fail(stream, of_huginn(error).body)
        return stream.response
    except Exception as error:
        await _fail(stream, of_fault(error).body)
        return stream.response
    _settle(delivery, choices)
    return stream.response


async def _relay(
    delivery: Delivery, answers: Answers, stream: EventStream, first: Event | None
) -> list[Choice]:
    """Everything from the openings to `[DONE]`; the choices, complete."""
    choices = [Choice() for _ in delivery.jobs]
    for index in range(len(choices)):
        await _send(delivery, stream, delivery.dialect.opening(index))
    event = first
    while any(choice.finish is None for choice in choices):
        if event is None:
            event = await answers.next(delivery.gateway.limits.ping_ns / _NS_PER_S)
        if event is None:
            await stream.ping()
            continue
        await _send_event(delivery, stream, event, choices[event.choice])
        event = None
    if delivery.include_usage:
        usage = {"usage": delivery.usage(choices)}
        await stream.send(delivery.frame(delivery.dialect.chunk, []) | usage)
    await stream.done()
    return choices


async def _send_event(
    delivery: Delivery, stream: EventStream, event: Event, choice: Choice
) -> None:
    dialect = delivery.dialect
    if isinstance(event.outcome, Item) and event.outcome.kind == "delta":
        await _send(delivery, stream, dialect.delta(event.choice, event.outcome, choice))
    choice.take(event.outcome)
    if choice.finish is not None:
        extra = delivery.extra(choice) if event.choice == 0 else {}
        await _send(delivery, stream, dialect.finish(event.choice, choice.finish), extra)


async def _send(
    delivery: Delivery, stream: EventStream, choice: Json | None, extra: Json | None = None
) -> None:
    if choice is None:
        return
    frame = delivery.frame(delivery.dialect.chunk, [choice]) | (extra or {})
    if delivery.include_usage:
        # As documented: there in every chunk once asked for, and null in all but the last.
        frame["usage"] = None
    await stream.send(frame)


async def _fail(stream: EventStream, body: Any) -> None:
    try:
        await stream.send(body)
    except ConnectionError:
        return


def _settle(delivery: Delivery, choices: list[Choice]) -> None:
    if delivery.gateway.limits.settle_answers:
        delivery.gateway.later(delivery.settle(choices))
