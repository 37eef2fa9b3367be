"""A revocation holds for the next message, and in the middle of a stream (AUT-4)."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import ClientResponse, ClientSession

from tests.fake_rooms import Service, running
from tests.scripted_worker import MODEL
from tests.worker_rooms import until

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def revoke(http: ClientSession, service: Service, name: str) -> None:
    path = f"/huginn/v1/keys/{name}"
    async with http.delete(path, headers=bearer(service.operator_key)) as answer:
        assert answer.status == 200, await answer.text()


async def events_of(answer: ClientResponse) -> list[dict[str, object]]:
    """What is left of a stream of events, until its end."""
    async with asyncio.timeout(60):
        text = (await answer.read()).decode()
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.req("AUT-4")
async def test_an_answer_ends_in_its_middle_with_an_error() -> None:
    async with running() as service, ClientSession(service.base_url) as http:
        service.worker.script.gate = asyncio.Event()
        other = bearer(service.operator_key)
        mine = bearer(service.client_key)
        async with (
            http.post("/v1/chat/completions", json=CHAT | {"stream": True}, headers=mine) as answer,
            http.post("/v1/chat/completions", json=CHAT | {"stream": True}, headers=other) as whole,
        ):
            assert (answer.status, whole.status) == (200, 200)
            await service.worker.began.wait_for(2)
            await revoke(http, service, "client")
            # It waits for its first token, and would for good: the revocation ends it.
            said = await events_of(answer)
            error = said[-1]["error"]
            assert isinstance(error, dict)
            assert error["code"] == "key_revoked"
            assert "revoked" in error["message"]
            assert not any(
                choice["delta"].get("content") for each in said[:-1] for choice in each["choices"]
            )
            await service.worker.over.wait_for(1)
            assert service.worker.stopped_early == 1, "what computes it was stopped"
            # Nobody else's answer ends by that.
            service.worker.script.gate.set()
            assert all("error" not in each for each in await events_of(whole))
        async with http.post("/v1/chat/completions", json=CHAT, headers=mine) as answer:
            assert answer.status == 401


@pytest.mark.req("AUT-4", "EVT-4")
async def test_a_feed_of_events_ends_although_nothing_happens() -> None:
    async with running() as service, ClientSession(service.base_url) as http:
        headers = bearer(service.client_key) | {"Accept": "text/event-stream"}
        async with http.get("/huginn/v1/events", headers=headers) as feed:
            assert feed.status == 200
            live = service.mailbox.rooms["events"]._live
            await until(lambda: len(live) == 1, pause_s=0.005)
            await revoke(http, service, "client")
            said = await events_of(feed)
            assert [each["error"]["code"] for each in said] == ["key_revoked"]  # type: ignore[index]
            assert not len(live)
