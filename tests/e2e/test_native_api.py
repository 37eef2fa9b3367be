"""The native surface against a running service, by the paths and fields that are fixed points."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest
from aiohttp import ClientSession

CONTEXTS = "/huginn/v1/contexts"
TALK: list[dict[str, str]] = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
]


class AnyService(Protocol):
    base_url: str
    operator_key: str


@pytest.fixture
async def http(service: AnyService) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    async with ClientSession(service.base_url, headers=headers) as session:
        yield session


async def call(
    http: ClientSession, method: str, path: str, *, status: int = 200, **body: Any
) -> dict[str, Any]:
    async with http.request(method, path, json=body or None) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


@pytest.fixture
async def model(http: ClientSession) -> str:
    name: str = (await call(http, "GET", "/v1/models"))["data"][0]["id"]
    return name


@pytest.mark.req("SRV-7")
async def test_health(service: AnyService) -> None:
    async with ClientSession(service.base_url) as stranger:
        assert (await call(stranger, "GET", "/health"))["status"] == "ok"


@pytest.mark.req("SRV-1")
async def test_tokens_there_and_back(http: ClientSession, model: str) -> None:
    content = "Hello world! Café déjà vu — 123 😊\n\n\n<end_of_turn><eos>"
    made = await call(http, "POST", "/v1/tokenize", model=model, content=content)
    assert made["count"] == len(made["tokens"])
    back = await call(http, "POST", "/v1/detokenize", model=model, tokens=made["tokens"])
    assert back == {"content": content}


@pytest.mark.req("SRV-1")
async def test_a_conversation_tokenizes_to_what_a_chat_reads(
    http: ClientSession, model: str
) -> None:
    made = await call(http, "POST", "/v1/tokenize", model=model, messages=TALK)
    chat = {"model": model, "messages": TALK, "max_tokens": 1}
    async with http.post("/v1/chat/completions", json=chat) as response:
        usage = (await response.json())["usage"]
        context = response.headers["Huginn-Context"]
    assert usage["prompt_tokens"] == made["count"]
    shown = await call(http, "GET", f"{CONTEXTS}/{context}?tokens=1")
    assert made["tokens"][: len(shown["tokens"])] == shown["tokens"]
    assert [block["content"] for block in shown["blocks"]] == [m["content"] for m in TALK]


@pytest.mark.req("SRV-2")
async def test_an_edit_is_explained(http: ClientSession, model: str) -> None:
    edited = [TALK[0], {"role": "assistant", "content": "Paris!"}, TALK[2]]
    a, b = [
        (await call(http, "POST", CONTEXTS, model=model, messages=talk))["context_id"]
        for talk in (TALK, edited)
    ]
    found = await call(http, "POST", f"{CONTEXTS}/diff", a=a, b=b)
    assert found["equal_blocks"] == 1
    assert found["first_difference"]["index"] == 1
    assert found["first_difference"]["reason"] == "content"
    assert found["first_difference"]["token_index"] > 0
    same = await call(http, "POST", f"{CONTEXTS}/diff", a=a, b=a)
    assert same["first_difference"] is None
    tree = await call(http, "GET", f"{CONTEXTS}/{a}/tree")
    assert tree["nodes"][0]["blocks"] == 3


@pytest.mark.req("KV-8", "SRV-2")
async def test_a_turn_leaves_a_receipt(http: ClientSession, model: str) -> None:
    made = await call(
        http, "POST", "/v1/chat/completions", model=model, messages=TALK, max_tokens=1
    )
    receipt = await call(http, "GET", f"/huginn/v1/receipts/{made['id']}")
    assert receipt["prompt_tokens"] == made["usage"]["prompt_tokens"]
    assert receipt["reused_tokens"] + receipt["prefilled_tokens"] == receipt["prompt_tokens"]
    assert set(receipt["tiers"]) >= {"device", "host", "disk"}
    assert receipt["profile_id"].startswith("profile:")
    assert receipt["ttft_ms"] >= 0
    for block in receipt["blocks"]:
        assert block.keys() >= {"block_id", "role", "type", "tokens", "reused"}


@pytest.mark.req("AUT-3", "AUT-7")
async def test_another_principal_sees_nothing_of_the_first(
    http: ClientSession, service: AnyService, model: str
) -> None:
    chat: dict[str, Any] = {"model": model, "messages": TALK, "max_tokens": 1, "temperature": 0}
    made = await call(http, "POST", "/v1/chat/completions", **chat)
    context = (await call(http, "POST", CONTEXTS, model=model, messages=TALK))["context_id"]
    key = await call(http, "POST", "/huginn/v1/keys", principal="guest")
    headers = {"Authorization": f"Bearer {key['key']}"}
    try:
        async with ClientSession(service.base_url, headers=headers) as guest:
            bodies = set()
            for path in (
                f"{CONTEXTS}/{context}",
                f"{CONTEXTS}/{context[:-1]}",
                f"{CONTEXTS}/x",
                f"/huginn/v1/receipts/{made['id']}",
                "/huginn/v1/receipts/chatcmpl-x",
            ):
                async with guest.get(path) as response:
                    assert response.status == 404
                    bodies.add(await response.read())
            assert len(bodies) == 1
            usages = [
                (await call(guest, "POST", "/v1/chat/completions", **chat))["usage"]
                for _ in range(2)
            ]
            assert usages[0] == usages[1]
            assert usages[0]["prompt_tokens"] == made["usage"]["prompt_tokens"]
            assert usages[0]["prompt_tokens_details"]["cached_tokens"] == 0
            await call(guest, "GET", "/huginn/v1/keys", status=403)
    finally:
        await call(http, "DELETE", "/huginn/v1/keys/guest")
    async with ClientSession(service.base_url, headers=headers) as guest:
        await call(guest, "GET", "/v1/models", status=401)


@pytest.mark.req("SRV-2")
async def test_the_operator_sees_the_workers(http: ClientSession, model: str) -> None:
    status = await call(http, "GET", "/huginn/v1/status")
    assert model in [worker["model"] for worker in status["workers"]]
