"""Health tells the truth, and the status is for the operator."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service
from tests.happenings import SLED, happen

STREAMED = {"Accept": "text/event-stream"}


@pytest.mark.req("SRV-7")
async def test_health_is_for_anyone(stranger: ClientSession, service: Service) -> None:
    async with stranger.get("/health") as response:
        assert response.status == 200
        assert await response.json() == {
            "status": "ok",
            "version": "0.0-test",
            "models": ["raven"],
        }
    service.gateway.ports.readiness.lost()
    async with stranger.get("/health") as response:
        assert response.status == 503
        assert response.headers["Retry-After"]
        body = await response.json()
    assert body["status"] == "loading"
    assert body["error"]["code"] == "unavailable"


async def test_health_says_why_it_is_degraded(
    stranger: ClientSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = service.gateway.ports.space
    with monkeypatch.context() as held:
        # The front room looks for room by itself, and here it would find some.
        held.setattr(space, "found", lambda: None)
        space.lacked("a context")
        async with stranger.get("/health") as response:
            assert response.status == 200  # chats are answered all the same
            body = await response.json()
    assert (body["status"], body["code"], body["models"]) == ("degraded", "disk_full", ["raven"])
    assert "disk" in body["reason"]
    space.found()
    async with stranger.get("/health") as response:
        assert (await response.json())["status"] == "ok"


async def test_the_status_counts(http: ClientSession, service: Service) -> None:
    async with http.get("/huginn/v1/status") as response:
        assert response.status == 200
        status = await response.json()
    assert status["ready"] is True
    assert "worker" in status["rooms"]
    (worker,) = status["workers"]
    assert worker["model"] == "raven"
    assert worker["stats"]["streams"] == 4
    assert worker["stats"]["profile"].startswith("profile:")
    service.mailbox.down.add("worker")
    async with http.get("/huginn/v1/status") as response:
        (worker,) = (await response.json())["workers"]
    assert worker["stats"] is None
    assert "died" in worker["error"]


@pytest.mark.req("DRV-5")
async def test_the_status_shows_the_memo_or_why_it_cannot(
    http: ClientSession, service: Service
) -> None:
    chat = {"model": "raven", "messages": [{"role": "user", "content": "Hello"}]}
    async with http.post("/v1/chat/completions", json=chat) as response:
        said = await response.json()
        assert response.status == 200
    async with asyncio.timeout(60):
        memo = {"domains": []}
        while not memo["domains"]:
            await asyncio.sleep(0.02)
            async with http.get("/huginn/v1/status") as response:
                memo = (await response.json())["muninn"]
    assert (memo["enabled"], memo["quarantined"], memo["error"]) == (True, 0, None)
    assert [(each["domain"], each["invocations"] > 0) for each in memo["domains"]] == [
        ("operator", True)
    ]
    assert memo["counters"]["report inserted"] == memo["domains"][0]["invocations"]
    del service.mailbox.rooms["muninn"]
    async with http.get("/huginn/v1/status") as response:
        assert response.status == 200
        memo = (await response.json())["muninn"]
    assert (memo["enabled"], memo["domains"]) == (False, [])
    assert "no muninn room" in memo["error"]
    async with http.post("/v1/chat/completions", json=chat) as response:
        assert response.status == 200
        again = await response.json()
    assert again["usage"]["prompt_tokens"] == said["usage"]["prompt_tokens"]


@pytest.mark.req("EVT-14")
async def test_the_operator_sees_what_happened(http: ClientSession, service: Service) -> None:
    await happen(service, "1122", "1123")
    async with http.get("/huginn/v1/status") as response:
        events = (await response.json())["events"]
    assert (events["sources"], events["sessions"], events["error"]) == (1, 0, None)
    nothing = dict.fromkeys(("produced", "delivered", "gaps", "dropped", "refilled", "pending"), 0)
    assert events["counters"] == nothing
    # One reads the stream from the beginning, and one is told in a turn.
    async with http.get(f"/huginn/v1/sources/{SLED}/events?after=0", headers=STREAMED) as response:
        async for line in response.content:
            if b"1123" in line:
                break
    async with http.post("/huginn/v1/sessions", json={"since": "beginning"}) as response:
        session = (await response.json())["id"]
    asked = {"model": "raven", "input": "what happened?", "huginn": {"session": session}}
    async with http.post("/v1/responses", json=asked) as response:
        assert response.status == 200
    async with http.get("/huginn/v1/status") as response:
        events = (await response.json())["events"]
    assert (events["sources"], events["sessions"], events["error"]) == (1, 1, None)
    read = {"produced": 2, "delivered": 2}
    told = {"injected": 2, "counted": 0, "gaps seen": 0, "turns": 1, "collected": 0}
    assert events["counters"] == nothing | read | told
    service.mailbox.down.add("events")
    async with http.get("/huginn/v1/status") as response:
        assert response.status == 200
        events = (await response.json())["events"]
    assert (events["sources"], events["counters"]) == (None, {})
    assert "the events died" in events["error"]
    async with http.get("/health") as response:
        assert response.status == 200
