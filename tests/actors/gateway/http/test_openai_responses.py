"""Responses with the official client: turns that build on each other by their ids."""

from __future__ import annotations

import itertools
from typing import Any

import openai
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.fake_rooms import Service
from tests.happenings import QUESTION, happen, prompt_text, prompt_types
from tests.scripted_worker import ANSWER, Script

RESPOND = "/v1/responses"


async def ask(sdk: AsyncOpenAI, **fields: Any) -> Response:
    given = {"model": "raven", "input": QUESTION, "temperature": 0} | fields
    made = await sdk.responses.create(**given)
    assert isinstance(made, Response)
    return made


async def refused(http: ClientSession, status: int = 400, **fields: Any) -> dict[str, Any]:
    body = {"model": "raven", "input": "hi"} | fields
    async with http.post(RESPOND, json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        error: dict[str, Any] = answer["error"]
        return error


@pytest.mark.req("SRV-1")
async def test_a_response_has_every_field(sdk: AsyncOpenAI, service: Service) -> None:
    made = await ask(sdk, metadata={"a": "b"}, max_output_tokens=200, top_p=0.9)
    assert made.id.startswith("resp_")
    assert (made.status, made.output_text, made.object) == ("completed", ANSWER, "response")
    assert made.model == "raven"
    assert (made.temperature, made.top_p, made.max_output_tokens) == (0, 0.9, 200)
    assert made.metadata == {"a": "b"}
    assert made.usage is not None
    assert made.usage.output_tokens == len(ANSWER.encode())
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert (made.error, made.incomplete_details, made.previous_response_id) == (None, None, None)
    assert service.worker.asked[-1].response == made.id


@pytest.mark.req("SRV-1", "EVT-11")
async def test_a_response_goes_on_from_another(sdk: AsyncOpenAI, service: Service) -> None:
    await happen(service, "1122")
    first = await ask(sdk)
    assert prompt_text(service).count("1122 merged") == 1
    await service.worker.settlements.wait_for(1)
    second = await ask(sdk, input="and?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert prompt_types(service) == ["event reminder", "user turn", "model turn", "user turn"]
    assert prompt_text(service).count("1122 merged") == 1
    before, after = service.worker.asked[-2:]
    assert after.segments[:2] == before.segments
    assert second.usage is not None
    fed = sum(len(part.head) + len(part.content) for part in before.segments) // 4
    assert second.usage.input_tokens_details.cached_tokens >= fed


@pytest.mark.req("SRV-1")
async def test_any_earlier_response_can_be_gone_on_from(sdk: AsyncOpenAI, service: Service) -> None:
    first = await ask(sdk, input="one")
    second = await ask(sdk, input="two", previous_response_id=first.id)
    branch = await ask(sdk, input="three", previous_response_id=first.id)
    assert "two" not in prompt_text(service)
    await ask(sdk, input="four", previous_response_id=branch.id)
    assert "three" in prompt_text(service)
    assert "two" not in prompt_text(service)
    await ask(sdk, input="five", previous_response_id=second.id)
    assert "two" in prompt_text(service)


@pytest.mark.req("SRV-1")
async def test_instructions_are_for_one_response(sdk: AsyncOpenAI, service: Service) -> None:
    first = await ask(sdk, instructions="Be brief.")
    assert first.instructions == "Be brief."
    assert prompt_types(service)[0] == "instruction"
    await ask(sdk, previous_response_id=first.id)
    assert "Be brief." not in prompt_text(service)


async def test_the_same_instructions_keep_the_prefix(sdk: AsyncOpenAI, service: Service) -> None:
    first = await ask(sdk, instructions="Be brief.")
    await service.worker.settlements.wait_for(1)
    await ask(sdk, instructions="Be brief.", previous_response_id=first.id)
    before, after = service.worker.asked[-2:]
    assert after.segments[: len(before.segments)] == before.segments
    settled = service.worker.settled[0].segments
    assert after.segments[: len(settled)] == settled


@pytest.mark.req("SRV-1")
async def test_a_response_in_a_session_is_its_newest_turn(
    sdk: AsyncOpenAI, http: ClientSession, service: Service
) -> None:
    async with http.post("/huginn/v1/sessions", json={"persona": "sally"}) as made:
        session = (await made.json())["id"]
    for index in range(2):
        raw = await sdk.responses.with_raw_response.create(
            model="raven", input=str(index), extra_headers={"Huginn-Session": session}
        )
        assert raw.headers["huginn-session"] == session
        assert raw.headers["huginn-context"].startswith("ctx:")
    async with http.get(f"/huginn/v1/sessions/{session}") as found:
        turns = (await found.json())["turns"]
    assert turns[-1]["id"] == raw.headers["huginn-turn"]
    assert turns[1]["parent"] == turns[0]["id"]
    assert [part.role for part in service.worker.asked[-1].segments] == ["user", "model", "user"]


@pytest.mark.req("SRV-1")
async def test_what_is_not_stored_is_no_turn(
    sdk: AsyncOpenAI, http: ClientSession, service: Service
) -> None:
    await happen(service, "1122")
    service.mailbox.calls.clear()
    made = await ask(sdk, store=False, instructions="Be brief.")
    assert (made.output_text, made.instructions) == (ANSWER, "Be brief.")
    assert "events" not in service.mailbox.calls
    assert prompt_types(service) == ["instruction", "user turn"]
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(made.id)
    error = await refused(http, previous_response_id=made.id)
    assert error["code"] == "previous_response_not_found"


@pytest.mark.req("AUT-3")
async def test_a_response_of_somebody_else_is_not_there(
    sdk: AsyncOpenAI, http: ClientSession, tenant: ClientSession
) -> None:
    made = await ask(sdk)
    for client, name in ((tenant, made.id), (http, "resp_x"), (tenant, "nonsense")):
        error = await refused(client, previous_response_id=name)
        assert error["param"] == "previous_response_id"
        assert error["code"] == "previous_response_not_found"


async def test_a_response_of_another_session_is_refused(
    sdk: AsyncOpenAI, http: ClientSession
) -> None:
    made = await ask(sdk)
    async with http.post("/huginn/v1/sessions", json={}) as opened:
        session = (await opened.json())["id"]
    await refused(http, previous_response_id=made.id, huginn={"session": session})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"store": False, "previous_response_id": "resp_x"}, "store"),
        ({"store": False, "huginn": {"session": "s"}}, "store"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
    ],
)
async def test_a_fault_is_named_before_anything_begins(
    http: ClientSession, service: Service, fields: dict[str, Any], param: str
) -> None:
    error = await refused(http, **fields)
    assert error["param"] == param
    assert "events" not in service.mailbox.calls


async def test_the_same_key_is_the_same_response(sdk: AsyncOpenAI, service: Service) -> None:
    first = await ask(sdk)
    headers = {"Idempotency-Key": "once"}
    made = [await ask(sdk, previous_response_id=first.id, extra_headers=headers) for _ in range(2)]
    assert made[0].id == made[1].id
    assert made[0].output_text == made[1].output_text
    assert len(service.worker.asked) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_told_again_as_it_was_told(
    sdk: AsyncOpenAI, service: Service, stream: bool
) -> None:
    """In every field but its times; streamed, with the same events but for how many deltas."""
    first = await ask(sdk)
    made, kinds = [], []
    for _ in range(2):
        given: dict[str, Any] = {
            "previous_response_id": first.id,
            "max_output_tokens": 3,
            "instructions": "Be brief.",
            "metadata": {"a": "b"},
            "extra_headers": {"Idempotency-Key": "once"},
        }
        if not stream:
            made.append(await ask(sdk, **given))
            continue
        opened = await sdk.responses.create(
            model="raven", input=QUESTION, temperature=0, stream=True, **given
        )
        events = [event async for event in opened]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.incomplete"
        made.append(events[-1].response)
        kinds.append([kind for kind, _ in itertools.groupby(event.type for event in events)])
    shown = [each.model_dump() | {"created_at": 0, "completed_at": 0} for each in made]
    assert shown[1] == shown[0]
    assert len(kinds) == 2 * stream
    assert kinds[1:] == kinds[:1]
    assert (made[0].status, made[0].output_text) == ("incomplete", ANSWER[:3])
    assert made[0].incomplete_details is not None
    assert made[0].incomplete_details.reason == "max_output_tokens"
    assert made[0].usage is not None
    assert (made[0].usage.output_tokens, made[0].usage.input_tokens > 0) == (3, True)
    assert len(service.worker.asked) == 2


async def test_a_key_with_another_request_is_refused(sdk: AsyncOpenAI, service: Service) -> None:
    first, other = await ask(sdk), await ask(sdk)
    key = {"Idempotency-Key": "once"}
    asked = {"previous_response_id": first.id, "extra_headers": key}
    await ask(sdk, **asked)
    for fields in (
        {"input": "else"},
        {"instructions": "Be brief."},
        {"max_output_tokens": 3},
        {"temperature": 1},
        {"metadata": {"a": "b"}},
    ):
        with pytest.raises(openai.ConflictError) as refused:
            await ask(sdk, **(asked | fields))
        assert refused.value.code == "key_reused"
    # The key is the session's: of another one it says nothing.
    await ask(sdk, **(asked | {"previous_response_id": other.id}))
    assert len(service.worker.asked) == 4


@pytest.mark.req("AUT-7")
async def test_who_may_not_know_is_told_again_without_what_was_reused(service: Service) -> None:
    base_url = f"{service.base_url}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key=service.client_key, max_retries=0) as sdk:
        first = await ask(sdk)
        given = {"previous_response_id": first.id, "extra_headers": {"Idempotency-Key": "once"}}
        made = [await ask(sdk, **given) for _ in range(2)]
    for each in made:
        assert each.usage is not None
        assert each.usage.input_tokens_details.cached_tokens == 0
    assert made[0].usage == made[1].usage


@pytest.mark.req("EVT-5")
async def test_a_response_that_failed_can_be_tried_again(
    sdk: AsyncOpenAI, service: Service
) -> None:
    await happen(service, "1122")
    first = await ask(sdk, input="hi")
    await happen(service, "1123")
    service.worker.script = Script(break_after=2)
    with pytest.raises(openai.InternalServerError):
        await ask(sdk, previous_response_id=first.id)
    service.worker.script = Script()
    await ask(sdk, previous_response_id=first.id)
    text = prompt_text(service)
    assert (text.count("1122 merged"), text.count("1123 merged")) == (1, 1)


@pytest.mark.req("EVT-7")
async def test_without_the_events_room_what_is_not_stored_is_answered(
    sdk: AsyncOpenAI, service: Service
) -> None:
    service.mailbox.down.add("events")
    with pytest.raises(openai.InternalServerError, match="sessions are not available now"):
        await ask(sdk)
    assert (await ask(sdk, store=False)).output_text == ANSWER
