"""The audit log over HTTP: entries with the digests that chain them, for who operates."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from protocol import cbor
from store.tables import LogEntry, verify_chain
from tests.fake_rooms import Service

PATH = "/huginn/v1/audit"


async def read(http: ClientSession, path: str = PATH, *, status: int = 200) -> dict[str, Any]:
    async with http.get(path) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


@pytest.mark.req("AUT-8")
async def test_what_was_granted_and_refused_is_read(
    http: ClientSession, tenant: ClientSession, service: Service
) -> None:
    refused: list[tuple[str, str]] = []
    service.gateway.on_refusal = lambda step, op, request_id: refused.append((step, op))
    await read(tenant, status=403)
    # The gateway's own refusal, and by the pattern of the path alone.
    assert refused == [("right", f"GET {PATH}")]
    page = await read(http, f"{PATH}?after=0")
    entries = [
        LogEntry(
            row["seq"],
            bytes.fromhex(row["previous"]),
            bytes.fromhex(row["digest"]),
            bytes.fromhex(row["body"]),
        )
        for row in page["data"]
    ]
    head = verify_chain("audit", entries, None)
    assert page["head"] == {"seq": head.seq, "digest": head.digest.hex()}
    acts = [(row["entry"]["act"], row["entry"]["subject"]) for row in page["data"]]
    assert {act for act, _ in acts} >= {"grant", "register"}
    assert all(cbor.decode(bytes.fromhex(row["body"])) for row in page["data"])
    assert (await read(http, f"{PATH}?limit=1"))["data"] == page["data"][-1:]
    assert (await read(http, f"{PATH}?after={head.seq}"))["data"] == []


@pytest.mark.req("AUT-8")
async def test_a_stranger_is_on_record_without_what_it_showed(
    stranger: ClientSession, service: Service
) -> None:
    refused: list[tuple[str, str]] = []
    service.gateway.on_refusal = lambda step, op, request_id: refused.append((step, op))
    headers = {"Authorization": "Bearer hg-a-secret-of-mine"}
    async with stranger.get("/v1/models/private-name", headers=headers) as response:
        assert response.status == 401
    assert refused == [("key", "GET /v1/models/{name}")]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "after=x"])
async def test_numbers_out_of_range(http: ClientSession, query: str) -> None:
    await read(http, f"{PATH}?{query}", status=400)
