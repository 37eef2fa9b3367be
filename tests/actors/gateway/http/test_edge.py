"""The edge: ids, keys, preflights, and an error body on whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from aiohttp import ClientResponse, ClientSession

from actors.gateway.http.app import make_app
from actors.gateway.limits import Limits
from actors.runtime.logs import JsonLines
from protocol.errors import CorruptObject
from tests.fake_rooms import Service, running
from tests.scripted_worker import Script

CHAT = "/v1/chat/completions"
HELLO = {"model": "raven", "messages": [{"role": "user", "content": "hello"}]}


async def error_of(response: ClientResponse) -> dict[str, object]:
    assert response.content_type == "application/json"
    body = await response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert response.headers["X-Request-Id"].startswith("req-")
    error: dict[str, object] = body["error"]
    return error


@pytest.mark.req("SRV-1")
async def test_a_path_that_is_not_here_and_a_method_that_is_not_allowed(
    http: ClientSession,
) -> None:
    for method, path, status, code in [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/nonsense", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("PUT", CHAT, 405, "method_not_allowed"),
    ]:
        async with http.request(method, path) as response:
            assert response.status == status, path
            assert (await error_of(response))["code"] == code
            if status == 405:
                assert response.headers["Allow"]


@pytest.mark.req("SRV-1", "AUT-3")
async def test_without_a_key_everything_is_one_401(stranger: ClientSession) -> None:
    bodies = set()
    for headers in ({}, {"Authorization": "Bearer hg-nobody"}, {"Authorization": "Basic eDp5"}):
        for method, path in [
            ("GET", "/v1/models"),
            ("POST", CHAT),
            ("POST", "/nonsense"),
            ("GET", "/huginn/v1/keys"),
            ("PUT", "/v1/models"),
        ]:
            async with stranger.request(method, path, headers=headers, data=b"{") as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert (await error_of(response))["code"] == "invalid_api_key"
                bodies.add(await response.read())
    assert len(bodies) == 1


@pytest.mark.req("SRV-1")
async def test_a_preflight_is_answered_before_any_key(stranger: ClientSession) -> None:
    headers = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    async with stranger.options(CHAT, headers=headers) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
        assert response.headers["X-Request-Id"]
    # A browser shows a refusal to its page only with the same header.
    async with stranger.get("/v1/models", headers={"Origin": "http://x"}) as response:
        assert response.status == 401
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert "Huginn-Context" in response.headers["Access-Control-Expose-Headers"]


@pytest.mark.req("SRV-1")
async def test_a_preflight_allows_every_method_that_a_path_has(service: Service) -> None:
    """Else a page could not ask for what the routes offer."""
    served = {route.method for route in make_app(service.gateway).router.routes()} - {"HEAD"}
    assert {"GET", "POST", "PUT", "DELETE"} <= served
    async with (
        ClientSession(service.base_url) as stranger,
        stranger.options(CHAT, headers={"Origin": "http://x"}) as response,
    ):
        allowed = response.headers["Access-Control-Allow-Methods"].split(", ")
    assert sorted(allowed) == sorted(served | {"OPTIONS"})


async def test_every_request_has_an_id_of_its_own(http: ClientSession) -> None:
    ids = set()
    for _ in range(3):
        async with http.get("/health", headers={"X-Request-Id": "mine"}) as response:
            ids.add(response.headers["X-Request-Id"])
    assert len(ids) == 3
    assert "mine" not in ids


async def test_a_fault_of_ours_says_nothing_of_the_inside(
    http: ClientSession, service: Service
) -> None:
    service.worker.script = Script(refuse=CorruptObject("/var/lib/secret/path is rotten"))
    async with http.post(CHAT, json=HELLO) as response:
        assert response.status == 500
        error = await error_of(response)
    assert error["type"] == "server_error"
    assert "secret" not in str(error)


async def test_a_bug_in_a_room_is_a_500_in_json(http: ClientSession, service: Service) -> None:
    service.worker.script = Script(answer=None)  # type: ignore[arg-type]
    async with http.post(CHAT, json=HELLO) as response:
        assert response.status == 500
        assert (await error_of(response))["code"] == "internal_error"


@pytest.mark.req("SRV-7")
async def test_the_log_has_neither_content_nor_key(
    http: ClientSession, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = {"model": "raven", "messages": [{"role": "user", "content": "xyzzy-secret"}]}
    async with http.post(CHAT, json=secret) as response:
        await response.read()
    async with http.get("/v1/models?key=xyzzy-query") as response:
        await response.read()
    async with http.get("/huginn/v1/contexts/xyzzy-path") as response:
        await response.read()
    written = [JsonLines().format(r) for r in caplog.records if r.name.startswith("huginn")]
    assert not [line for line in written if "xyzzy" in line or service.operator_key in line]
    lines = [msgspec.json.decode(line) for line in written]
    access = [line for line in lines if line["logger"] == "huginn.access"]
    assert [(line["path"], line["status"]) for line in access] == [
        (CHAT, 200),
        ("/v1/models", 200),
        ("/huginn/v1/contexts/{id}", 404),
    ]
    assert {line["principal"] for line in access} == {"operator"}
    assert all(line["request_id"].startswith("req-") and line["ms"] >= 0 for line in access)


@pytest.mark.req("AUT-9")
async def test_one_principals_flood_is_its_own() -> None:
    """429 with a time to wait, for the one alone; what is open is given back when it ends."""
    async with running(Limits(requests_open_max=1)) as service:
        service.worker.script.gate = asyncio.Event()
        chat = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}
        client = {"Authorization": f"Bearer {service.client_key}"}
        operator = {"Authorization": f"Bearer {service.operator_key}"}
        async with ClientSession(service.base_url) as session:
            first = asyncio.ensure_future(
                session.post("/v1/chat/completions", json=chat, headers=client)
            )
            await service.worker.began.wait_for(1)
            async with session.get("/v1/models", headers=client) as refused:
                assert refused.status == 429
                assert refused.headers["Retry-After"] == "1"
                error = (await refused.json())["error"]
                assert error["code"] == "rate_limit_exceeded"
            async with session.get("/v1/models", headers=operator) as other:
                assert other.status == 200
            service.worker.script.gate.set()
            async with await first as answer:
                assert answer.status == 200
            async with session.get("/v1/models", headers=client) as again:
                assert again.status == 200
