"""Events over HTTP: appended durably, read in pages, waited for, and followed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from actors.gateway.http.app import make_app, serve
from actors.gateway.http.state import ENDLESS
from protocol.events import open_entry
from tests.fake_rooms import Service

SOURCES = "/huginn/v1/sources"
MERGED = "/huginn/v1/events"
SSE = {"Accept": "text/event-stream"}


def merge(subject: str, **more: Any) -> dict[str, Any]:
    body = {"merge_commit": "9f3c"}
    return {"kind": "MergeSucceeded", "subject": subject, "body": body, **more}


async def add(http: ClientSession, *names: str) -> dict[str, Any]:
    found = {}
    for name in names:
        async with http.post(SOURCES, json={"name": name}) as response:
            assert response.status == 200
            found[name] = await response.json()
    return found


async def emit(http: ClientSession, name: str, events: Any, **headers: str) -> Any:
    async with http.post(f"{SOURCES}/{name}/events", json=events, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def refused(http: ClientSession, name: str, events: Any, **headers: str) -> tuple[int, Any]:
    async with http.post(f"{SOURCES}/{name}/events", json=events, headers=headers) as response:
        return response.status, (await response.json())["error"]


async def get(http: ClientSession, path: str, status: int = 200) -> Any:
    async with http.get(path) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def sse(response: ClientResponse) -> AsyncIterator[dict[str, str]]:
    """The events of a stream as they come, each as its fields; pings are left out."""
    fields: dict[str, str] = {}
    async for line in response.content:
        name, colon, value = line.decode().rstrip("\n").partition(": ")
        if not colon and fields:
            yield fields
            fields = {}
        elif name:
            fields[name] = value


async def taken(response: ClientResponse, count: int) -> list[dict[str, str]]:
    found = []
    async with asyncio.timeout(60):
        async for fields in sse(response):
            found.append(fields)
            if len(found) == count:
                break
    return found


@pytest.mark.req("EVT-2")
async def test_an_append_is_answered_with_number_and_id(http: ClientSession) -> None:
    source = (await add(http, "builds"))["builds"]
    first = await emit(http, "builds", merge("1122", **{"from": "merge", "to": "done"}))
    assert first["seq"] == 1
    more = await emit(http, "builds", [merge("1123"), {"kind": "Close", "subject": "7"}])
    assert [each["seq"] for each in more["data"]] == [2, 3]
    page = await get(http, f"{SOURCES}/builds/events")
    assert (page["head"], page["gap"]) == (3, None)
    assert [each["id"] for each in page["data"]] == [first["id"], *(e["id"] for e in more["data"])]
    shown = page["data"][0]
    assert (shown["from"], shown["to"], shown["subject"]) == ("merge", "done", "1122")
    assert shown["body"] == {"merge_commit": "9f3c"}
    # Whoever gets an entry can verify it, with the source's key alone.
    public = base64.b64decode(source["public_key"])
    previous, last = None, 0
    for each in page["data"]:
        id, event = open_entry(base64.b64decode(each["entry"]), public)
        assert (str(id), str(event.source)) == (each["id"], source["id"])
        assert (event.prev and str(event.prev)) == previous
        assert event.hlc > last
        previous, last = str(id), event.hlc


async def test_a_key_is_answered_as_the_first_time(http: ClientSession) -> None:
    await add(http, "builds")
    key = {"Idempotency-Key": "delivery-7"}
    first = await emit(http, "builds", [merge("1"), merge("2")], **key)
    await emit(http, "builds", merge("3"))
    assert await emit(http, "builds", [merge("1"), merge("2")], **key) == first
    status, error = await refused(http, "builds", merge("other"), **key)
    assert (status, error["code"]) == (409, "conflict")
    assert (await get(http, f"{SOURCES}/builds/events"))["head"] == 3


async def test_many_at_once_with_one_key_are_one(http: ClientSession) -> None:
    await add(http, "builds")
    key = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(emit(http, "builds", merge("1"), **key) for _ in range(8)))
    assert answers == [answers[0]] * 8
    numbers = await asyncio.gather(*(emit(http, "builds", merge(str(n))) for n in range(30)))
    assert sorted(each["seq"] for each in numbers) == list(range(2, 32))


@pytest.mark.req("EVT-1")
@pytest.mark.parametrize(
    ("event", "word"),
    [
        (merge("1") | {"body": {}}, "merge_commit"),
        (merge("1") | {"body": {"merge_commit": 3}}, "merge_commit"),
        (merge("1") | {"kind": "StoryMerged"}, "StoryMerged"),
        (merge("1") | {"kind": "nothing"}, "nothing"),
        (merge("1") | {"from": "merge"}, "from"),
        ({"kind": "Heartbeat", "subject": "a", "from": "x", "to": "y"}, "transition"),
        ({"kind": "Close", "subject": "a", "body": {"at_s": 1.5}}, "decimal string"),
        ({"kind": "Close", "subject": "s" * 1025}, "subject"),
        ({"kind": "Close"}, "subject"),
        ({"kind": "Close", "subject": 3}, "subject"),
        ([], "1 to 1024"),
        ("Close", "body"),
    ],
)
async def test_what_is_no_event(http: ClientSession, event: Any, word: str) -> None:
    await add(http, "builds")
    status, error = await refused(http, "builds", event)
    assert status == 400
    assert word in error["message"]
    # All or none: a good one beside it is not kept either.
    if isinstance(event, dict):
        assert (await refused(http, "builds", [merge("good"), event]))[0] == 400
    assert (await get(http, f"{SOURCES}/builds/events"))["head"] == 0


async def test_pages_and_cursors(http: ClientSession) -> None:
    await add(http, "builds")
    await emit(http, "builds", [merge(str(n)) for n in range(5)])
    path = f"{SOURCES}/builds/events"
    page = await get(http, f"{path}?after=1&limit=2")
    assert [each["seq"] for each in page["data"]] == [2, 3]
    assert (await get(http, f"{path}?after=5"))["data"] == []
    for query in ("after=6", "after=-1", "after=x", "limit=0", "limit=1025", "wait_s=61"):
        error = (await get(http, f"{path}?{query}", 400))["error"]
        assert error["param"] == query.partition("=")[0]


async def test_a_long_poll_ends_with_the_next_event(http: ClientSession) -> None:
    await add(http, "builds", "other")
    path = f"{SOURCES}/builds/events?after=0&wait_s=60"
    waiting = asyncio.create_task(get(http, path))
    await emit(http, "other", merge("no"))
    await emit(http, "builds", merge("yes"))
    async with asyncio.timeout(50):
        page = await waiting
    assert [each["subject"] for each in page["data"]] == ["yes"]
    assert (await get(http, f"{SOURCES}/other/events?after=1&wait_s=1"))["data"] == []


async def test_a_stream_resumes_at_its_ids(http: ClientSession) -> None:
    await add(http, "builds")
    await emit(http, "builds", [merge("1"), merge("2")])
    path = f"{SOURCES}/builds/events"
    async with http.get(f"{path}?after=1", headers=SSE) as response:
        assert response.content_type == "text/event-stream"
        assert json.loads((await taken(response, 1))[0]["data"])["subject"] == "2"
        await emit(http, "builds", [merge("3"), merge("4")])
        later = await taken(response, 2)
    assert [json.loads(each["data"])["seq"] for each in later] == [3, 4]
    assert [each["id"] for each in later] == ["3", "4"]
    async with http.get(path, headers={**SSE, "Last-Event-ID": "3"}) as response:
        assert (await taken(response, 1))[0]["id"] == "4"


@pytest.mark.req("EVT-10")
async def test_many_sources_are_one_stream(http: ClientSession, tenant: ClientSession) -> None:
    await add(http, "a", "b")
    await add(tenant, "secret")
    expected = []
    for n in range(6):
        name = "ab"[n % 2]
        await emit(http, name, merge(str(n)))
        await emit(tenant, "secret", merge("not yours"))
        expected.append((name, str(n)))
    page = await get(http, MERGED)
    assert [(each["source"], each["subject"]) for each in page["data"]] == expected
    assert [e["hlc"] for e in page["data"]] == sorted(e["hlc"] for e in page["data"])
    first = await get(http, f"{MERGED}?limit=4")
    rest = await get(http, f"{MERGED}?after={first['cursor']}")
    assert first["data"] + rest["data"] == page["data"]
    assert (await get(http, f"{MERGED}?after={rest['cursor']}"))["data"] == []
    assert (await get(http, f"{MERGED}?after=now"))["data"] == []
    assert (await get(http, f"{MERGED}?after=x", 400))["error"]["param"] == "after"


@pytest.mark.req("EVT-10")
async def test_the_merged_stream_takes_new_sources_too(http: ClientSession) -> None:
    await add(http, "a")
    await emit(http, "a", merge("before"))
    async with http.get(MERGED, headers=SSE) as response:
        assert (await response.content.readline()).startswith(b":")
        await add(http, "b")
        await emit(http, "b", merge("1"))
        await emit(http, "a", merge("2"))
        found = await taken(response, 2)
    assert [json.loads(each["data"])["subject"] for each in found] == ["1", "2"]
    async with http.get(MERGED, headers={**SSE, "Last-Event-ID": found[0]["id"]}) as response:
        assert json.loads((await taken(response, 1))[0]["data"])["subject"] == "2"


async def test_a_removed_source_is_a_gap_to_who_had_not_read_it(http: ClientSession) -> None:
    await add(http, "a", "b")
    async with http.get(f"{MERGED}?after=beginning", headers=SSE) as response:
        await emit(http, "a", merge("1"))
        assert json.loads((await taken(response, 1))[0]["data"])["subject"] == "1"
        async with http.delete(f"{SOURCES}/a") as removed:
            assert removed.status == 200
        await emit(http, "b", merge("2"))
        assert json.loads((await taken(response, 1))[0]["data"])["source"] == "b"


async def test_a_stop_of_the_service_waits_for_nobody_who_follows(service: Service) -> None:
    app = make_app(service.gateway)
    runner, port = await serve(app, "127.0.0.1", 0)
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    async with ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http:
        await add(http, "builds")
        path = f"{SOURCES}/builds/events"
        asks = [(MERGED, SSE), (path, SSE), (f"{path}?wait_s=60", {})]
        clients = [asyncio.create_task(http.get(ask, headers=more)) for ask, more in asks]
        async with asyncio.timeout(30):
            while len(app[ENDLESS]) < 3:
                await asyncio.sleep(0.01)
            following = list(app[ENDLESS])
            await app.shutdown()
            await asyncio.wait(following)
        for client in clients:
            client.cancel()
        answers = await asyncio.gather(*clients, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, ClientResponse):
                answer.close()
    await runner.cleanup()


@pytest.mark.req("EVT-13")
async def test_events_cause_no_turn(service: Service, http: ClientSession) -> None:
    await add(http, "builds")
    async with http.post("/huginn/v1/sessions", json={"persona": "timmy"}) as response:
        assert response.status == 200
    service.mailbox.calls.clear()
    for start in range(0, 10_000, 1000):
        await emit(http, "builds", [merge(str(start + n)) for n in range(1000)])
    assert (await get(http, f"{SOURCES}/builds/events?after=9999"))["head"] == 10_000
    assert service.worker.asked == []
    assert set(service.mailbox.calls) == {"events"}
