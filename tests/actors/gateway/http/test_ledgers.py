"""Who is shown what of the ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

CHAT = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}


async def ledger(http: ClientSession, which: str = "logical", status: int = 200) -> Any:
    async with http.get(f"/huginn/v1/ledgers/{which}") as answer:
        body = await answer.json()
        assert answer.status == status, body
        return body.get("data", body)


async def chat(http: ClientSession) -> int:
    async with http.post("/v1/chat/completions", json=CHAT) as answer:
        return int((await answer.json())["usage"]["prompt_tokens"])


@pytest.mark.req("AUT-6")
async def test_a_key_is_shown_its_own_and_the_operator_everybodys(
    http: ClientSession, tenant: ClientSession
) -> None:
    (row,) = await ledger(tenant)
    assert (row["principal"], row["answers"], row["derivations"]) == ("client", 0, 0)
    tokens = await chat(tenant)
    assert await chat(tenant) == await chat(http) == tokens
    (row,) = await ledger(tenant)
    assert (row["principal"], row["answers"], row["prompt_tokens"]) == ("client", 2, 2 * tokens)
    rows = {row["principal"]: row for row in await ledger(http)}
    assert rows["client"] == row
    assert rows["operator"]["prompt_tokens"] == tokens


@pytest.mark.req("AUT-6", "AUT-7")
async def test_what_it_took_is_for_the_operator_alone(
    http: ClientSession, tenant: ClientSession
) -> None:
    (row,) = await ledger(http, "physical")
    assert (row["room"], row["device_ns"], row["cpu_ns"]) == ("worker", 5, 7)
    refused = await ledger(tenant, "physical", status=403)
    assert refused["error"]["code"] == "permission_denied"


@pytest.mark.req("AUT-6", "DRV-6")
async def test_looks_are_charged_whatever_is_found(
    http: ClientSession, tenant: ClientSession
) -> None:
    unknown = f"/huginn/v1/derivations/inv:{'a' * 52}"
    async with http.get(unknown) as answer:
        assert answer.status == 404
    rows = {row["principal"]: row for row in await ledger(http)}
    assert rows["operator"]["derivations"] == 1
    (row,) = await ledger(tenant)
    assert row["derivations"] == 0
