"""Receipts: for those with telemetry, in their own domain."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from actors.room import Call
from protocol.errors import ContentError
from protocol.messages.worker import AskReceipt, Receipt
from tests.fake_rooms import Service
from tests.scripted_worker import ScriptedWorker

ASK = {"model": "raven", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


async def answered(http: ClientSession, **fields: Any) -> dict[str, Any]:
    async with http.post("/v1/chat/completions", json=ASK | fields) as response:
        made: dict[str, Any] = await response.json()
        return made | {"context": response.headers["Huginn-Context"]}


@pytest.mark.req("KV-8")
async def test_a_receipt_by_the_id_of_its_response(http: ClientSession) -> None:
    made = await answered(http)
    async with http.get(f"/huginn/v1/receipts/{made['id']}") as response:
        assert response.status == 200
        receipt = await response.json()
    assert receipt["response_id"] == made["id"]
    assert receipt["context_id"] == made["context"]
    assert receipt["prompt_tokens"] == made["usage"]["prompt_tokens"]
    assert receipt["reused_tokens"] + receipt["prefilled_tokens"] == receipt["prompt_tokens"]
    assert set(receipt["tiers"]) == {"device", "host", "disk"}
    assert receipt["blocks"][0].keys() == {"block_id", "role", "type", "tokens", "reused"}


async def test_each_choice_has_its_own(http: ClientSession) -> None:
    made = await answered(http, n=2)
    async with http.get(f"/huginn/v1/receipts/{made['id']}-1") as response:
        assert (await response.json())["response_id"] == f"{made['id']}-1"


@pytest.mark.req("AUT-7")
async def test_without_telemetry_and_of_others_there_is_none(
    http: ClientSession, tenant: ClientSession
) -> None:
    mine, theirs = await answered(tenant), await answered(http)
    bodies = set()
    for client, wanted in [
        (tenant, mine["id"]),
        (tenant, theirs["id"]),
        (http, mine["id"]),
        (http, "chatcmpl-nothing"),
    ]:
        async with client.get(f"/huginn/v1/receipts/{wanted}") as response:
            assert response.status == 404
            bodies.add(await response.read())
    assert len(bodies) == 1


class Strict(ScriptedWorker):
    """Refuses ids that no response can have, as the product's worker does."""

    async def on_receipt(self, call: Call, ask: AskReceipt) -> Receipt:
        if len(ask.response) > 255:
            raise ContentError("a response id has 1 to 255 characters")
        return await super().on_receipt(call, ask)


@pytest.mark.req("AUT-3")
async def test_an_id_that_no_response_can_have_is_one_more_that_is_unknown(
    http: ClientSession, service: Service
) -> None:
    service.mailbox.rooms["worker"] = Strict(service.world("worker"))
    bodies = set()
    for wanted in ("chatcmpl-nothing", "x" * 256, "a%00b%FF"):
        async with http.get(f"/huginn/v1/receipts/{wanted}") as response:
            assert response.status == 404
            bodies.add(await response.read())
    assert len(bodies) == 1


async def test_a_worker_that_is_away_is_no_reason_to_say_there_is_none(
    http: ClientSession, service: Service
) -> None:
    made = await answered(http)
    service.mailbox.down.add("worker")
    async with http.get(f"/huginn/v1/receipts/{made['id']}") as response:
        assert response.status == 503
