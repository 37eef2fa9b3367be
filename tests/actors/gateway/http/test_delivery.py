"""Streams on the wire: their order, their faults, and what happens when the client goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession
from openai import APIError, AsyncOpenAI

from actors.gateway.limits import Limits
from protocol.errors import BudgetExceeded, WorkerFault
from tests.fake_rooms import Service, running
from tests.scripted_worker import ANSWER, Script
from tests.sse import joined, read_events

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": "raven",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
}
STREAM = ASK | {"stream": True}


@pytest.fixture
async def quick() -> AsyncIterator[Service]:
    """A service that pings at once, and gives a worker no time to refuse."""
    limits = Limits(ping_ns=20_000_000, grace_ns=1_000_000, write_ns_max=200_000_000)
    async with running(limits) as started:
        yield started


def session(service: Service) -> ClientSession:
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    return ClientSession(service.base_url, headers=headers)


@pytest.mark.req("SRV-1")
async def test_the_order_of_a_stream(http: ClientSession) -> None:
    """F4, F12: role first, text, an empty delta with the reason, [DONE] once, nothing after."""
    async with http.post(CHAT, json=STREAM) as response:
        chunks = await read_events(response)
    assert chunks[-1] == "[DONE]"
    assert chunks.count("[DONE]") == 1
    chunks = chunks[:-1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(delta.keys() == {"content"} for delta in deltas[1:-1])
    assert deltas[-1] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert joined(chunks) == ANSWER
    # F9: nobody asked for usage.
    assert not [chunk for chunk in chunks if "usage" in chunk]


@pytest.mark.req("SRV-1")
async def test_a_stream_says_what_a_whole_answer_says(http: ClientSession) -> None:
    async with http.post(CHAT, json=ASK) as response:
        whole = await response.json()
        context = response.headers["Huginn-Context"]
    async with http.post(
        CHAT, json=STREAM | {"stream_options": {"include_usage": True}}
    ) as response:
        chunks = (await read_events(response))[:-1]
        assert response.headers["Huginn-Context"] == context
    assert joined(chunks) == whole["choices"][0]["message"]["content"]
    # F8, F11: once, last, with no choices, and equal to the whole answer's.
    *parts, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert [part["usage"] for part in parts] == [None] * len(parts)


@pytest.mark.req("SRV-1")
async def test_headers_and_role_come_before_any_prefill(quick: Service) -> None:
    gate = asyncio.Event()
    quick.worker.script = Script(gate=gate)
    async with (
        asyncio.timeout(60),
        session(quick) as http,
        http.post(CHAT, json=STREAM) as response,
    ):
        assert response.status == 200
        assert b'"role":"assistant"' in await response.content.readuntil(b"\n\n")
        # Nothing else to say yet: comments from a timer.
        assert await response.content.readuntil(b"\n\n") == b": ping\n\n"
        assert await response.content.readuntil(b"\n\n") == b": ping\n\n"
        assert quick.worker.deltas == 0
        gate.set()
        assert b"[DONE]" in await response.read()


async def test_a_busy_stream_needs_no_pings(http: ClientSession) -> None:
    async with http.post(CHAT, json=STREAM) as response:
        raw = await response.read()
    assert b": ping" not in raw
    assert b"id:" not in raw.replace(b'"id":', b"")


@pytest.mark.req("SRV-1")
async def test_a_refusal_before_the_stream_has_a_status_of_its_own(
    http: ClientSession, service: Service
) -> None:
    for error, status, code in [
        (WorkerFault("the worker died"), 503, "worker_unavailable"),
        (BudgetExceeded("100 tokens, 10 fit"), 400, "context_length_exceeded"),
    ]:
        service.worker.script = Script(refuse=error)
        for body in (ASK, STREAM):
            async with http.post(CHAT, json=body) as response:
                assert response.status == status
                assert (await response.json())["error"]["code"] == code


@pytest.mark.req("SRV-1", "OPS-6")
async def test_a_worker_that_is_down_is_a_503_before_the_stream(
    http: ClientSession, service: Service
) -> None:
    service.mailbox.down.add("worker")
    for body in (ASK, STREAM):
        async with http.post(CHAT, json=body) as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            assert (await response.json())["error"]["code"] == "worker_unavailable"
    service.mailbox.down.clear()
    async with http.post(CHAT, json=ASK) as response:
        assert response.status == 200


@pytest.mark.req("SRV-1", "OPS-6")
@pytest.mark.parametrize("vanish", [False, True])
async def test_a_fault_in_the_middle_is_an_error_event(
    http: ClientSession, service: Service, vanish: bool
) -> None:
    """F14: never answer text, never [DONE]."""
    service.worker.script = Script(break_after=3, vanish=vanish)
    async with http.post(CHAT, json=STREAM) as response:
        assert response.status == 200
        events = await read_events(response)
    assert "[DONE]" not in events
    *chunks, last = events
    assert last.keys() == {"error"}
    assert last["error"]["code"] == "worker_unavailable"
    assert joined(chunks) == ANSWER[:3]
    assert not [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert service.worker.settled == []


@pytest.mark.req("SRV-1")
async def test_the_sdk_raises_on_an_error_event(sdk: AsyncOpenAI, service: Service) -> None:
    service.worker.script = Script(break_after=3)
    stream = await sdk.chat.completions.create(**STREAM)
    text = []

    async def read() -> None:
        async for chunk in stream:
            text.append(chunk.choices[0].delta.content or "")

    with pytest.raises(APIError) as caught:
        await read()
    assert "".join(text) == ANSWER[:3]
    assert "wall" in caught.value.message


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize("body", [ASK, STREAM])
async def test_a_client_that_goes_stops_its_answer(service: Service, body: dict[str, Any]) -> None:
    """H1, H4, H5: during prefill and during decoding, streamed or not."""
    for script in (Script(gate=asyncio.Event()), Script(answer="x" * 5000, pace_s=0.001)):
        service.worker.script = script
        before = service.worker.over.value
        async with session(service) as http:
            request = asyncio.create_task(http.post(CHAT, json=body))
            await service.worker.began.wait_for(before + 1)
            await asyncio.sleep(0.02)
            # A stream's head may have come by now; either way the connection closes.
            request.cancel()
            for done in await asyncio.gather(request, return_exceptions=True):
                if isinstance(done, ClientResponse):
                    done.close()
        await service.worker.over.wait_for(before + 1)
    assert service.worker.running == 0
    assert service.worker.stopped_early == 2
    await service.gateway.drain()
    # No half turn is kept.
    assert service.worker.settled == []


@pytest.mark.req("SRV-1")
async def test_a_client_that_leaves_in_mid_stream_stops_it(service: Service) -> None:
    service.worker.script = Script(answer="x" * 5000, pace_s=0.001)
    async with session(service) as http:
        response = await http.post(CHAT, json=STREAM)
        await response.content.readuntil(b"\n\n")
        response.close()
    await service.worker.over.wait_for(1)
    assert service.worker.deltas < 5000


async def test_a_client_that_does_not_read_loses_its_stream(quick: Service) -> None:
    quick.worker.script = Script(answer="x" * 5000)
    small = socket.socket()
    # The smallest window there is: the server feels a client that stops reading soon.
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, quick.host_port)
    reader, writer = await asyncio.open_connection(sock=small, limit=1024)
    body = (
        b'{"model":"raven","stream":true,"n":8,"max_tokens":2000,'
        b'"messages":[{"role":"user","content":"hi"}]}'
    )
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + quick.operator_key.encode()
        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    await writer.drain()
    await quick.worker.over.wait_for(8)
    assert quick.worker.stopped_early == 8
    # The connection is closed from the other side; what was in flight is no whole answer.
    async with asyncio.timeout(60):
        assert b"[DONE]" not in await reader.read()
    writer.close()
    await writer.wait_closed()


@pytest.mark.req("SRV-1")
async def test_after_a_disconnect_the_next_request_is_served(service: Service) -> None:
    """H3: nothing is left locked."""
    service.worker.script = Script(gate=asyncio.Event())
    async with session(service) as http:
        request = asyncio.create_task(http.post(CHAT, json=STREAM))
        await service.worker.began.wait_for(1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    service.worker.script = Script()
    async with session(service) as http, http.post(CHAT, json=ASK) as response:
        assert response.status == 200


@pytest.mark.req("SRV-6")
async def test_choices_are_streamed_side_by_side(http: ClientSession) -> None:
    body = STREAM | {"n": 3, "temperature": 1, "seed": 5}
    async with http.post(CHAT, json=body) as response:
        chunks = (await read_events(response))[:-1]
    texts = [joined(chunks, index) for index in range(3)]
    assert len(set(texts)) == 3
    assert all(text.endswith(ANSWER) for text in texts)
    reasons = [c["index"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert sorted(reasons) == [0, 1, 2]
    async with http.post(CHAT, json=body | {"stream": False}) as response:
        whole = await response.json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == texts
    assert whole["usage"]["completion_tokens"] == sum(len(text.encode()) for text in texts)


@pytest.mark.req("AUT-7")
async def test_what_was_reused_is_told_to_those_who_may_know(
    http: ClientSession, tenant: ClientSession
) -> None:
    """The same request cold and warm: without telemetry the two answers are equal."""

    async def usage(client: ClientSession) -> dict[str, Any]:
        async with client.post(CHAT, json=ASK | {"huginn": {"receipt": True}}) as response:
            body = await response.json()
        assert ("huginn" in body) == (client is http)
        usage: dict[str, Any] = body["usage"]
        return usage

    cold, warm = await usage(tenant), await usage(tenant)
    assert cold == warm
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    cold, warm = await usage(http), await usage(http)
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["prompt_tokens_details"] == {"cached_tokens": warm["prompt_tokens"] - 1}
    # The logical figures are the same for all, whatever was warm.
    assert {k: v for k, v in cold.items() if k != "prompt_tokens_details"} == {
        k: v for k, v in warm.items() if k != "prompt_tokens_details"
    }


async def test_a_receipt_rides_on_the_last_chunk(http: ClientSession) -> None:
    body = STREAM | {"huginn": {"receipt": True}}
    async with http.post(CHAT, json=body) as response:
        chunks = (await read_events(response))[:-1]
    carried = [chunk["huginn"]["receipt"] for chunk in chunks if "huginn" in chunk]
    assert len(carried) == 1
    assert carried[0]["response_id"] == chunks[0]["id"]
    assert chunks[-1]["huginn"]["receipt"] == carried[0]


async def test_the_answer_does_not_wait_for_what_comes_after_it(
    http: ClientSession, service: Service
) -> None:
    async with http.post(CHAT, json=ASK) as response:
        whole = await response.json()
    await service.worker.settlements.wait_for(1)
    (settle,) = service.worker.settled
    assert settle.response == whole["id"]
    asked = service.worker.asked[0]
    # The conversation as it was, and the answer as the client will send it back.
    assert settle.segments[: len(asked.segments)] == asked.segments
    answer = settle.segments[-1].content[::4]
    assert answer.decode() == whole["choices"][0]["message"]["content"]
    body = ASK | {
        "messages": [
            *ASK["messages"],
            {"role": "assistant", "content": answer.decode()},
            {"role": "user", "content": "and?"},
        ]
    }
    async with http.post(CHAT, json=body) as response:
        assert response.status == 200
    following = service.worker.asked[1].segments
    assert following[: len(settle.segments)] == settle.segments


async def test_settling_can_be_left_out() -> None:
    async with running(Limits(settle_answers=False)) as service, session(service) as http:
        async with http.post(CHAT, json=ASK) as response:
            assert response.status == 200
        await service.gateway.drain()
        assert service.worker.settled == []


async def test_grace_costs_an_answer_nothing() -> None:
    """An answer that is there ends the grace time, however long that is."""
    async with (
        running(Limits(grace_ns=3600 * 10**9)) as patient,
        session(patient) as http,
        asyncio.timeout(60),
        http.post(CHAT, json=STREAM) as response,
    ):
        assert b"[DONE]" in await response.read()
