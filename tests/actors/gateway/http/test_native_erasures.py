"""Erasures and retention over HTTP: asked for, listed, shown; one answer for others."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service

PATH = "/huginn/v1/erasures"
RETENTION = "/huginn/v1/retention"


async def call(
    http: ClientSession, method: str, path: str, body: Any = None, *, status: int = 200
) -> dict[str, Any]:
    async with http.request(method, path, json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


@pytest.mark.req("AUT-8", "SRV-2")
async def test_an_erasure_is_asked_for_listed_and_shown(
    http: ClientSession, service: Service
) -> None:
    # No gateway room answers in this house: the erasure stays open, and says why.
    made = await call(http, "POST", PATH, {"target": "principal", "name": "client"}, status=202)
    assert (made["state"], made["cause"], made["done_s"]) == ("open", "asked", None)
    assert made["waits"].startswith("gateway: ")
    assert set(made["rooms"]) == {"events", "assembler", "worker", "muninn", "ropes"}
    listed = await call(http, "GET", PATH)
    assert [each["id"] for each in listed["data"]] == [made["id"]]
    shown = await call(http, "GET", f"{PATH}/{made['id']}")
    assert shown["id"] == made["id"]
    rows = (await call(http, "GET", "/huginn/v1/keys"))["data"]
    assert {row["principal"]: row["revoked"] for row in rows}["client"]


@pytest.mark.req("AUT-7", "AUT-8")
async def test_a_tenant_erases_what_is_its_own(tenant: ClientSession, http: ClientSession) -> None:
    refused = await call(
        tenant, "POST", PATH, {"target": "namespace", "name": "operator"}, status=404
    )
    unknown = await call(
        tenant, "POST", PATH, {"target": "namespace", "name": "nowhere"}, status=404
    )
    assert refused["error"]["message"] == unknown["error"]["message"]
    mine = await call(tenant, "POST", PATH, {"target": "namespace", "name": "client"}, status=202)
    shown = await call(tenant, "GET", f"{PATH}/{mine['id']}")
    assert shown["name"] == "client"
    theirs = await call(http, "POST", PATH, {"target": "namespace", "name": "x"}, status=202)
    await call(tenant, "GET", f"{PATH}/{theirs['id']}", status=404)
    assert len((await call(tenant, "GET", PATH))["data"]) == 1
    assert len((await call(http, "GET", PATH))["data"]) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"target": "everything", "name": "x"}, "target"),
        ({"target": "domain"}, "name"),
        ({"name": "x"}, "target"),
    ],
)
async def test_a_request_that_is_none(http: ClientSession, body: Any, param: str) -> None:
    answer = await call(http, "POST", PATH, body, status=400)
    assert answer["error"]["param"] == param


async def test_the_operator_is_not_erased(http: ClientSession) -> None:
    answer = await call(http, "POST", PATH, {"target": "principal", "name": "operator"}, status=400)
    assert "administers this installation" in answer["error"]["message"]


@pytest.mark.req("AUT-4")
async def test_retention_is_set_by_who_administers(
    http: ClientSession, tenant: ClientSession
) -> None:
    found = await call(http, "GET", RETENTION)
    assert found["standard"] == {"domain": "*", "policy": "bounded", "seconds": 86_400}
    made = await call(http, "PUT", f"{RETENTION}/client", {"policy": "bounded", "seconds": 60})
    assert made == {"domain": "client", "policy": "bounded", "seconds": 60}
    assert (await call(http, "GET", RETENTION))["data"] == [made]
    await call(http, "PUT", f"{RETENTION}/client", {"policy": "immediate"})
    await call(http, "PUT", f"{RETENTION}/client", {"policy": "bounded"}, status=400)
    await call(tenant, "PUT", f"{RETENTION}/client", {"policy": "immediate"}, status=403)
    await call(tenant, "GET", RETENTION, status=403)
