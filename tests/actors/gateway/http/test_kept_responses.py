"""Responses that were given: shown as they were, their input as items, and forgotten."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.fake_rooms import Service
from tests.happenings import QUESTION, happen
from tests.scripted_worker import ANSWER, Script

RESPOND = "/v1/responses"
TALK: list[Any] = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "what time?"},
    {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "12:00"},
]


async def ask(sdk: AsyncOpenAI, **fields: Any) -> Response:
    given = {"model": "raven", "input": QUESTION, "temperature": 0} | fields
    made = await sdk.responses.create(**given)
    assert isinstance(made, Response)
    return made


@pytest.mark.req("SRV-1")
async def test_a_response_is_shown_as_it_was_given(sdk: AsyncOpenAI, service: Service) -> None:
    made = await ask(sdk, instructions="Be brief.", metadata={"a": "b"}, max_output_tokens=7)
    kept = await sdk.responses.retrieve(made.id)
    assert kept == made
    assert (kept.status, kept.instructions) == ("incomplete", "Be brief.")
    again = await ask(sdk, previous_response_id=made.id)
    assert await sdk.responses.retrieve(again.id) == again
    assert await sdk.responses.retrieve(made.id) == made


@pytest.mark.req("SRV-1")
async def test_the_input_is_listed_as_items(sdk: AsyncOpenAI, service: Service) -> None:
    await happen(service, "1122")
    first = await ask(sdk, input=TALK, instructions="Be brief.")
    made = await ask(sdk, previous_response_id=first.id)
    page = await sdk.responses.input_items.list(made.id, order="asc")
    items: list[Any] = [item async for item in page]
    assert [item.type for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert [item.role for item in items if item.type == "message"] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert (items[2].name, items[2].call_id, items[3].output) == ("clock", "c1", "12:00")
    assert items[4].content[0].text == ANSWER
    assert not [item for item in items if "1122" in item.model_dump_json()]


@pytest.mark.req("SRV-1")
async def test_items_come_in_pages_newest_first(sdk: AsyncOpenAI) -> None:
    made = await ask(sdk, input=TALK)
    seen: list[str] = []
    page = await sdk.responses.input_items.list(made.id, limit=2)
    assert len(page.data) == 2
    assert page.has_more
    async for item in page:
        seen.append(str(item.id))
    oldest = await sdk.responses.input_items.list(made.id, order="asc", limit=100)
    assert not oldest.has_more
    assert seen == [str(item.id) for item in oldest.data][::-1]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=item_9", "after"),
    ],
)
async def test_a_page_that_is_none_is_named(
    http: ClientSession, sdk: AsyncOpenAI, query: str, param: str
) -> None:
    made = await ask(sdk)
    async with http.get(f"{RESPOND}/{made.id}/input_items?{query}") as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param


@pytest.mark.req("SRV-1")
async def test_a_response_that_is_forgotten_is_gone_and_its_turn_is_not(
    sdk: AsyncOpenAI, http: ClientSession
) -> None:
    first = await ask(sdk)
    second = await ask(sdk, previous_response_id=first.id)
    async with http.delete(f"{RESPOND}/{first.id}") as response:
        assert await response.json() == {"id": first.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError):
        await ask(sdk, previous_response_id=first.id)
    # What went on from it goes on.
    assert (await ask(sdk, previous_response_id=second.id)).output_text == ANSWER


@pytest.mark.req("AUT-3")
async def test_unknown_and_somebody_elses_are_one_answer(
    sdk: AsyncOpenAI, http: ClientSession, tenant: ClientSession, service: Service
) -> None:
    made = await ask(sdk)
    session = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}
    async with http.post("/huginn/v1/sessions", json={}) as opened:
        chat = session | {"huginn": {"session": (await opened.json())["id"]}}
    async with http.post("/v1/chat/completions", json=chat) as answered:
        other_dialect = (await answered.json())["id"]
    bodies = set()
    asked = ((tenant, made.id), (tenant, "resp_x"), (http, "resp_x"), (http, other_dialect))
    for client, name in asked:
        for method, path in (("GET", ""), ("GET", "/input_items")):
            async with client.request(method, f"{RESPOND}/{name}{path}") as response:
                assert response.status == 404
                bodies.add(await response.read())
    async with tenant.delete(f"{RESPOND}/{made.id}") as response:
        assert response.status == 404
        bodies.add(await response.read())
    assert len(bodies) == 1


async def test_one_that_was_never_finished_is_not_there(
    sdk: AsyncOpenAI, http: ClientSession, service: Service
) -> None:
    service.worker.script = Script(break_after=2)
    with pytest.raises(openai.InternalServerError):
        await ask(sdk)
    async with http.get(f"{RESPOND}/{service.worker.asked[-1].response}") as response:
        assert response.status == 404


@pytest.mark.req("AUT-7")
async def test_what_was_reused_is_shown_to_those_who_may_know(
    sdk: AsyncOpenAI, http: ClientSession, tenant: ClientSession
) -> None:
    async with tenant.post(RESPOND, json={"model": "raven", "input": "hi"}) as response:
        made = await response.json()
    async with tenant.get(f"{RESPOND}/{made['id']}") as response:
        usage = (await response.json())["usage"]
    assert usage == made["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == 0


async def test_whoever_may_have_a_response_may_forget_it(
    http: ClientSession, service: Service
) -> None:
    async with http.post("/huginn/v1/keys", json={"principal": "sally"}) as made:
        key = (await made.json())["key"]
    async with AsyncOpenAI(base_url=f"{service.base_url}/v1", api_key=key) as sally:
        await sally.responses.delete((await ask(sally)).id)


async def test_what_does_not_apply_is_said(http: ClientSession, sdk: AsyncOpenAI) -> None:
    made = await ask(sdk)
    async with http.post(f"{RESPOND}/{made.id}/cancel") as response:
        assert response.status == 400
        assert "background" in (await response.json())["error"]["message"]
    async with http.get(f"{RESPOND}/{made.id}?stream=true") as response:
        assert (await response.json())["error"]["param"] == "stream"
