"""Publications over HTTP: made, listed and withdrawn by who administers; one answer for others."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service

PATH = "/huginn/v1/publications"
CONTEXTS = "/huginn/v1/contexts"
SYSTEM = {"role": "system", "content": "You are a raven.\n"}


async def call(
    http: ClientSession, method: str, path: str, body: Any = None, *, status: int = 200
) -> dict[str, Any]:
    async with http.request(method, path, json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


@pytest.mark.req("AUT-5", "SRV-2")
async def test_a_message_is_published_as_the_block_that_a_chat_has(
    http: ClientSession, service: Service
) -> None:
    made = await call(http, "POST", PATH, SYSTEM)
    talk = {"messages": [SYSTEM, {"role": "user", "content": "hi"}]}
    context = await call(http, "POST", CONTEXTS, talk)
    assert made == {
        "block_id": context["blocks"][0]["block_id"],
        "role": "system",
        "type": "instruction",
        "name": None,
        "content_bytes": 17,
    }
    assert await call(http, "POST", PATH, SYSTEM) == made
    assert await call(http, "GET", PATH) == {"object": "list", "data": [made]}
    assert service.worker.told_of_publications == 2
    assert await call(http, "DELETE", f"{PATH}/{made['block_id']}") == made
    assert (await call(http, "GET", PATH))["data"] == []
    assert service.worker.told_of_publications == 3


@pytest.mark.req("AUT-5")
async def test_the_worker_is_told_what_is_public_of_a_chat(
    http: ClientSession, tenant: ClientSession, service: Service
) -> None:
    talk = [SYSTEM, {"role": "user", "content": "hi"}]
    body = {"model": "raven", "messages": talk, "temperature": 0}
    await call(tenant, "POST", "/v1/chat/completions", body)
    await call(http, "POST", PATH, SYSTEM)
    await call(tenant, "POST", "/v1/chat/completions", body)
    await service.worker.settlements.wait_for(2)
    statements = [ask.public for ask in (*service.worker.asked, *service.worker.settled)]
    assert [each is not None for each in statements] == [False, True, False, True]
    # No field of a request is one.
    forged = {**body, "public": "AAAA", "huginn": {"public": True}}
    forged["messages"] = talk[1:]
    await call(tenant, "POST", "/v1/chat/completions", forged)
    assert service.worker.asked[-1].public is None


@pytest.mark.req("AUT-3", "AUT-5")
async def test_others_get_one_answer_whatever_they_ask(
    http: ClientSession, tenant: ClientSession
) -> None:
    made = await call(http, "POST", PATH, SYSTEM)
    bodies = set()
    for method, path, body in [
        ("POST", PATH, SYSTEM),
        ("POST", PATH, {"role": "nobody"}),
        ("GET", PATH, None),
        ("DELETE", f"{PATH}/{made['block_id']}", None),
        ("DELETE", f"{PATH}/{made['block_id'][:-1]}", None),
        ("DELETE", f"{PATH}/x", None),
    ]:
        async with tenant.request(method, path, json=body) as response:
            assert response.status == 403
            bodies.add(await response.read())
    assert len(bodies) == 1
    assert len((await call(http, "GET", PATH))["data"]) == 1
    # Knowing the id of a public block shows nobody what it says.
    await call(tenant, "GET", f"{CONTEXTS}/{made['block_id']}", status=404)


@pytest.mark.parametrize("block", ["x", "block:x", "ctx:" + "a" * 52, "block:" + "a" * 52])
async def test_what_is_not_public_is_one_answer(http: ClientSession, block: str) -> None:
    answer = await call(http, "DELETE", f"{PATH}/{block}", status=404)
    assert answer["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "body",
    [
        {"role": "narrator", "content": "x"},
        {"content": "x"},
        {"role": "tool", "content": "x", "tool_call_id": "c"},
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        [],
    ],
)
async def test_what_is_no_message_is_refused(http: ClientSession, body: Any) -> None:
    answer = await call(http, "POST", PATH, body, status=400)
    assert answer["error"]["type"] == "invalid_request_error"
    assert (await call(http, "GET", PATH))["data"] == []
