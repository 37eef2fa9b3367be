"""Chats in sessions: what a transport says of a turn, in headers and in errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from actors.gateway.http.errors import ApiError
from actors.gateway.http.session_turns import naming_session, refuse_choices
from actors.gateway.limits import Limits
from protocol.errors import ContentError, NotVisible
from tests.fake_rooms import Service, running
from tests.happenings import QUESTION, happen, prompt_text, prompt_types
from tests.scripted_worker import ANSWER, Script
from tests.sse import joined, read_events

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": QUESTION}


def client_of(service: Service) -> ClientSession:
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    return ClientSession(service.base_url, headers=headers)


async def new_session(http: ClientSession, **fields: Any) -> str:
    async with http.post("/huginn/v1/sessions", json={"scope": "all"} | fields) as response:
        assert response.status == 200, await response.text()
        made: dict[str, Any] = await response.json()
        return str(made["id"])


async def turns(http: ClientSession, session: str) -> list[dict[str, Any]]:
    async with http.get(f"/huginn/v1/sessions/{session}") as response:
        found: list[dict[str, Any]] = (await response.json())["turns"]
        return found


async def chat(
    http: ClientSession,
    session: str | None,
    *messages: dict[str, Any],
    status: int = 200,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> tuple[dict[str, str], dict[str, Any]]:
    body = {"model": "raven", "messages": list(messages) or [USER], "temperature": 0} | fields
    given = {} if session is None else {"Huginn-Session": session}
    async with http.post(CHAT, json=body, headers=given | (headers or {})) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return dict(response.headers), answer


@pytest.mark.req("EVT-11", "EVT-12")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_told_once_and_it_stays(
    sdk: AsyncOpenAI, http: ClientSession, service: Service, stream: bool
) -> None:
    await happen(service, "1122")
    session = await new_session(http)
    messages: list[Any] = [USER]
    for number in (1, 2):
        raw = await sdk.chat.completions.with_raw_response.create(
            model="raven",
            messages=messages,
            temperature=0,
            stream=stream,
            extra_body={"huginn": {"session": session}},
        )
        if stream:
            await raw.http_response.aread()
        assert raw.headers["huginn-session"] == session
        listed = await turns(http, session)
        assert [turn["state"] for turn in listed] == ["finished"] * number
        assert listed[-1]["id"] == raw.headers["huginn-turn"]
        assert listed[-1]["context_id"] == raw.headers["huginn-context"]
        assert prompt_text(service).count("1122 merged") == 1
        assert prompt_types(service)[:2] == ["event reminder", "user turn"]
        messages += [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "and?"}]
    assert prompt_types(service)[2:] == ["model turn", "user turn"]


@pytest.mark.req("EVT-11")
async def test_the_second_prompt_begins_with_the_first(
    http: ClientSession, service: Service
) -> None:
    await happen(service, "1122")
    session = await new_session(http)
    await chat(http, session)
    await service.worker.settlements.wait_for(1)
    said = {"role": "assistant", "content": ANSWER}
    _, answer = await chat(http, session, USER, said, USER, huginn={"receipt": True})
    first, second = service.worker.asked[-2:]
    assert second.segments[: len(first.segments)] == first.segments
    blocks = answer["huginn"]["receipt"]["blocks"]
    assert [block["reused"] == block["tokens"] for block in blocks[:2]] == [True, True]


async def test_without_a_session_nothing_is_asked_of_the_events_room(
    http: ClientSession, service: Service
) -> None:
    await happen(service, "1122")
    service.mailbox.calls.clear()
    headers, _ = await chat(http, None)
    assert "events" not in service.mailbox.calls
    assert "Huginn-Session" not in headers
    assert prompt_types(service) == ["user turn"]


@pytest.mark.req("SRV-6")
async def test_a_turn_has_one_answer(http: ClientSession) -> None:
    session = await new_session(http)
    _, body = await chat(http, session, status=400, n=2)
    assert body["error"]["param"] == "n"
    assert "one answer" in body["error"]["message"]
    assert await turns(http, session) == []
    refuse_choices(1)
    with pytest.raises(ContentError, match="n is 3"):
        refuse_choices(3)


@pytest.mark.req("AUT-3")
async def test_a_session_that_is_not_ones_own_is_not_there(
    http: ClientSession, tenant: ClientSession
) -> None:
    session = await new_session(http)
    for client, name in ((tenant, session), (http, "session-x"), (tenant, "session-x")):
        _, body = await chat(client, name, status=404)
        assert body["error"]["code"] == "session_not_found"
        assert body["error"]["param"] == "huginn.session"
        assert session not in body["error"]["message"]


async def test_a_session_is_named_by_a_text(http: ClientSession) -> None:
    _, body = await chat(http, None, status=400, huginn={"session": 7})
    assert body["error"]["param"] == "huginn.session"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/tokenize", "/huginn/v1/contexts"])
async def test_what_is_no_conversation_is_no_turn(http: ClientSession, path: str) -> None:
    body = {"model": "raven", "prompt": "x", "content": "x", "messages": [USER]}
    async with http.post(path, json=body, headers={"Huginn-Session": "s"}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "huginn.session"


@pytest.mark.req("EVT-5")
async def test_a_stream_that_breaks_off_is_told_and_not_kept(
    http: ClientSession, service: Service
) -> None:
    await happen(service, "1122")
    session = await new_session(http)
    service.worker.script = Script(break_after=3, pace_s=0.05)
    body = {"model": "raven", "messages": [USER], "stream": True}
    async with http.post(CHAT, json=body, headers={"Huginn-Session": session}) as response:
        events = await read_events(response)
    assert events[-1]["error"]["code"] == "worker_unavailable"
    assert [turn["state"] for turn in await turns(http, session)] == ["unfinished"]
    service.worker.script = Script()
    await chat(http, session)
    assert prompt_text(service).count("1122 merged") == 1


@pytest.mark.req("EVT-5")
async def test_a_client_that_goes_away_leaves_an_unfinished_turn(
    http: ClientSession, service: Service
) -> None:
    await happen(service, "1122")
    session = await new_session(http)
    service.worker.script = Script(answer="slow " * 1000, pace_s=0.01)
    over = service.worker.over.value
    body = {"model": "raven", "messages": [USER], "stream": True}
    async with http.post(CHAT, json=body, headers={"Huginn-Session": session}) as response:
        await response.content.readany()
        response.close()
    await service.worker.over.wait_for(over + 1)
    service.worker.script = Script()
    await chat(http, session)
    states = [turn["state"] for turn in await turns(http, session)]
    assert states == ["unfinished", "finished"]
    assert prompt_text(service).count("1122 merged") == 1


@pytest.mark.req("EVT-5")
async def test_two_clients_at_once_are_ordered_or_refused() -> None:
    async with running(Limits(turn_wait_ns=10**6)) as service, client_of(service) as http:
        session = await new_session(http)
        gate = asyncio.Event()
        service.worker.script = Script(gate=gate)
        first = asyncio.create_task(chat(http, session))
        await service.worker.began.wait_for(1)
        _, refused = await chat(http, session, status=409)
        assert refused["error"]["code"] == "turn_in_progress"
        gate.set()
        await first
        # What is refused with 409 the official client tries again.
        await chat(http, session)
        assert [turn["state"] for turn in await turns(http, session)] == ["finished"] * 2


async def test_the_same_key_is_the_same_turn(http: ClientSession, service: Service) -> None:
    session = await new_session(http)
    key = {"Idempotency-Key": "once"}
    _, one = await chat(http, session, headers=key)
    asked = len(service.worker.asked)
    _, two = await chat(http, session, headers=key)
    assert (one["id"], one["choices"]) == (two["id"], two["choices"])
    assert len(service.worker.asked) == asked
    assert len(await turns(http, session)) == 1


async def test_a_chat_is_told_again_as_it_was_told(http: ClientSession, service: Service) -> None:
    """In every field but when it was told, whole or streamed."""
    session = await new_session(http)
    await chat(http, session, max_tokens=9)
    key = {"Idempotency-Key": "once"}
    fields = {"max_tokens": 9, "stream_options": {"include_usage": True}}
    heard, one = await chat(http, session, headers=key, **fields)
    asked = len(service.worker.asked)
    again, two = await chat(http, session, headers=key, **fields)
    assert one["choices"][0]["finish_reason"] == "length"
    assert one["usage"]["completion_tokens"] == 9
    assert one["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert two | {"created": 0} == one | {"created": 0}
    for name in ("Huginn-Session", "Huginn-Turn", "Huginn-Context"):
        assert again[name] == heard[name]
    body = {"model": "raven", "messages": [USER], "temperature": 0, "stream": True, **fields}
    given = {"Huginn-Session": session, **key}
    async with http.post(CHAT, json=body, headers=given) as response:
        assert response.headers["Huginn-Context"] == heard["Huginn-Context"]
        *chunks, last, done = await read_events(response)
    assert joined(chunks) == one["choices"][0]["message"]["content"]
    assert {chunk["id"] for chunk in chunks} == {one["id"]}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert (last["usage"], done) == (one["usage"], "[DONE]")
    assert len(service.worker.asked) == asked


async def test_a_key_with_another_request_is_refused(http: ClientSession, service: Service) -> None:
    session = await new_session(http)
    key = {"Idempotency-Key": "once"}
    await chat(http, session, headers=key, seed=7)
    other = {"role": "user", "content": "something else"}
    more: list[dict[str, Any]] = [{"seed": 8}, {"temperature": 1}, {"max_tokens": 5}, {"stop": "a"}]
    asked = [((USER,), {"seed": 7} | fields) for fields in more]
    asked += [(messages, {"seed": 7}) for messages in ((other,), (USER, other))]
    for messages, fields in asked:
        heard, refused = await chat(http, session, *messages, status=409, headers=key, **fields)
        assert refused["error"]["code"] == "key_reused"
        assert "another input" in refused["error"]["message"]
        # What will fail again the same way is not tried again by SDKs.
        assert heard["x-should-retry"] == "false"
    # How it is told, and null, which is absent, are no other request.
    await chat(http, session, headers=key, seed=7, stop=None, huginn={"receipt": True})
    assert len(service.worker.asked) == 1
    assert len(await turns(http, session)) == 1


async def test_logprobs_are_not_asked_for_with_a_key(http: ClientSession, service: Service) -> None:
    session = await new_session(http)
    key = {"Idempotency-Key": "once"}
    _, refused = await chat(http, session, status=400, headers=key, logprobs=True)
    assert refused["error"]["param"] == "logprobs"
    await chat(http, session, logprobs=True)
    await chat(http, None, headers=key, logprobs=True)


@pytest.mark.req("EVT-7")
async def test_without_the_events_room_only_sessions_wait(
    http: ClientSession, service: Service
) -> None:
    session = await new_session(http)
    service.mailbox.down.add("events")
    _, body = await chat(http, session, status=503)
    assert "sessions are not available now" in body["error"]["message"]
    await chat(http, None)
    async with http.get("/health") as response:
        assert response.status == 200


def test_what_is_not_there_is_named_by_its_parameter() -> None:
    for response, status, param in (
        (None, 404, "huginn.session"),
        ("resp_x", 400, "previous_response_id"),
    ):
        with pytest.raises(ApiError) as raised, naming_session(response):
            raise NotVisible("somewhere")
        assert (raised.value.status, raised.value.body.error.param) == (status, param)
