"""Streamed responses: every event, in the documented order, numbered without a gap."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from actors.gateway.answers import Choice
from actors.gateway.http.response_delivery import usage_of
from actors.gateway.limits import Limits
from protocol.errors import LimitExceeded
from tests.fake_rooms import Service, running
from tests.happenings import caller_of
from tests.scripted_worker import ANSWER, Script

RESPOND = "/v1/responses"
OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
CLOSING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
DELTA = "response.output_text.delta"


def read(raw: bytes) -> list[Any]:
    """The events on the wire; the name of each is its type."""
    found = []
    for block in raw.removesuffix(b"\n\n").split(b"\n\n"):
        if block.startswith(b":"):
            continue
        name, _, data = block.partition(b"\n")
        found.append(msgspec.json.decode(data.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


async def stream(http: ClientSession, **fields: Any) -> list[Any]:
    body = {"model": "raven", "input": "hi", "temperature": 0, "stream": True} | fields
    async with http.post(RESPOND, json=body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return read(await response.read())


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("fields", "last"), [({}, "completed"), ({"max_output_tokens": 5}, "incomplete")]
)
async def test_events_come_in_their_documented_order(
    http: ClientSession, fields: dict[str, Any], last: str
) -> None:
    events = await stream(http, **fields)
    text = ANSWER if last == "completed" else ANSWER[:5]
    kinds = [event["type"] for event in events]
    deltas = kinds.count(DELTA)
    assert deltas == len(text)
    assert kinds == [*OPENING, *[DELTA] * deltas, *CLOSING, f"response.{last}"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"] == DELTA) == text
    done = {event["type"]: event for event in events}
    assert done["response.output_text.done"]["text"] == text
    final = done[f"response.{last}"]["response"]
    assert final["status"] == last
    assert done["response.output_item.done"]["item"] == final["output"][0]
    ids = {event["item_id"] for event in events if "item_id" in event}
    assert ids == {final["output"][0]["id"]}
    assert final["usage"]["output_tokens"] == len(text.encode())
    begun = done["response.created"]["response"]
    assert (begun["id"], begun["status"], begun["output"]) == (final["id"], "in_progress", [])


@pytest.mark.req("SRV-1")
async def test_the_official_client_reads_the_stream(sdk: AsyncOpenAI) -> None:
    async with sdk.responses.stream(model="raven", input="hi", temperature=0) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == ANSWER
    kept = await sdk.responses.retrieve(final.id)
    assert (kept.output_text, kept.output[0].id) == (ANSWER, final.output[0].id)
    assert kept.usage == final.usage


@pytest.mark.req("SRV-1", "EVT-5")
async def test_the_answer_is_kept_before_its_end_is_told(
    http: ClientSession, service: Service
) -> None:
    """Whoever reads `response.completed` can go on from it at once."""
    for previous in range(3):
        events = await stream(http)
        response = events[-1]["response"]
        async with http.get(f"{RESPOND}/{response['id']}") as found:
            assert (await found.json()) == response
        assert len(service.worker.asked) == previous + 1


@pytest.mark.req("SRV-1")
async def test_an_answer_without_text_has_every_event(
    http: ClientSession, service: Service
) -> None:
    service.worker.script = Script(answer="")
    kinds = [event["type"] for event in await stream(http)]
    assert kinds == [*OPENING, *CLOSING, "response.completed"]


@pytest.mark.req("SRV-1")
async def test_a_fault_is_an_error_event_and_then_the_end(
    http: ClientSession, service: Service
) -> None:
    service.worker.script = Script(break_after=3, pace_s=0.1)
    events = await stream(http)
    error, failed = events[-2:]
    assert (error["type"], error["code"]) == ("error", "worker_unavailable")
    assert "ran into a wall" in error["message"]
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["message"] == error["message"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    async with http.get(f"{RESPOND}/{failed['response']['id']}") as found:
        assert found.status == 404


async def test_a_refusal_before_anything_is_a_status(http: ClientSession, service: Service) -> None:
    service.worker.script = Script(refuse=LimitExceeded("too many at once"))
    body = {"model": "raven", "input": "hi", "stream": True}
    async with http.post(RESPOND, json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "limit_exceeded"


async def test_silence_is_broken_by_comments() -> None:
    limits = Limits(ping_ns=20_000_000, grace_ns=1_000_000)
    async with running(limits) as service:
        gate = asyncio.Event()
        service.worker.script = Script(gate=gate)
        headers = {"Authorization": f"Bearer {service.operator_key}"}
        body = {"model": "raven", "input": "hi", "stream": True}
        async with (
            ClientSession(service.base_url, headers=headers) as http,
            http.post(RESPOND, json=body) as response,
        ):
            seen = b""
            while seen.count(b": ping\n\n") < 2:
                seen += await response.content.readany()
            gate.set()
            seen += await response.read()
        assert [event["type"] for event in read(seen)][-1] == "response.completed"


@pytest.mark.req("AUT-7")
async def test_only_those_who_may_know_are_told_what_was_reused(
    http: ClientSession, tenant: ClientSession, service: Service
) -> None:
    for client, shown in ((http, True), (tenant, False)):
        await stream(client, store=False)
        events = await stream(client, store=False, huginn={"receipt": True})
        final = events[-1]["response"]
        assert ("receipt" in final["huginn"]) == shown
        assert (final["usage"]["input_tokens_details"]["cached_tokens"] > 0) == shown
    choice = Choice(tokens=2)
    usage = usage_of(caller_of(service), 9, choice)
    assert (usage.input, usage.cached, usage.output) == (9, 0, 2)
