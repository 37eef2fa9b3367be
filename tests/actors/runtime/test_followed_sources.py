"""Sources of one installation followed by another over HTTP; and by way of someone who lies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from actors.runtime.remote_feed import HttpFeed
from tests.event_logs import SIGNER, SIGNERS, chain, entry_after, position
from tests.fake_rooms import Service, running
from tests.far_side import SOURCES, FarSide, allow, b64, said, serving


def client(service: Service) -> ClientSession:
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    return ClientSession(service.base_url, headers=headers)


async def ask(http: ClientSession, method: str, path: str, body: Any = None) -> Any:
    async with http.request(method, path, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return answer


async def emit(http: ClientSession, name: str, *subjects: str) -> None:
    events = [{"kind": "Close", "subject": subject} for subject in subjects]
    await ask(http, "POST", f"{SOURCES}/{name}/events", events)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await look():
            await asyncio.sleep(0.02)


async def row(http: ClientSession, name: str) -> dict[str, Any]:
    rows = (await ask(http, "GET", SOURCES))["data"]
    return next(each for each in rows if each["name"] == name)


@pytest.mark.req("EVT-10")
async def test_sources_of_two_installations_are_one_stream(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        far = await stack.enter_async_context(running())
        near = await stack.enter_async_context(running(feed=HttpFeed(tmp_path)))
        there = await stack.enter_async_context(client(far))
        here = await stack.enter_async_context(client(near))
        allow(tmp_path, far.base_url + SOURCES, far.operator_key)
        await ask(here, "POST", SOURCES, {"name": "home"})
        for name in ("a", "b"):
            made = await ask(there, "POST", SOURCES, {"name": name})
            await emit(there, name, f"{name} before")
            url = f"{far.base_url}{SOURCES}/{name}"
            asked = {"name": name, "url": url, "api_key_file": "far"}
            await ask(here, "POST", SOURCES, asked | {"public_key": made["public_key"]})
        expected = ["a before", "b before"]
        for number in range(12):
            name = ("a", "home", "b")[number % 3]
            await emit(here if name == "home" else there, name, str(number))
            expected.append(str(number))

        async def arrived() -> bool:
            rows = [await row(here, name) for name in ("a", "b")]
            return [(each["state"], each["head"]) for each in rows] == [("following", 5)] * 2

        await until(arrived)
        merged = await ask(here, "GET", "/huginn/v1/events")
        assert [each["subject"] for each in merged["data"]] == expected
        own = await ask(there, "GET", f"{SOURCES}/a/events")
        followed = await ask(here, "GET", f"{SOURCES}/a/events")
        assert followed == own, "byte for byte what its source signed"
        # Only its owner writes; who follows is told so.
        async with here.post(f"{SOURCES}/a/events", json={"kind": "Close", "subject": "x"}) as no:
            assert no.status == 400
        # Gone over there: the log here stays, and its state says what is wrong.
        await ask(there, "DELETE", f"{SOURCES}/a")

        async def refused() -> bool:
            found = await row(here, "a")
            return found["state"] == "refused" and found["head"] == 5

        await until(refused)
        assert "404" in (await row(here, "a"))["reason"]


@asynccontextmanager
async def following(far: FarSide, keys: Path) -> AsyncIterator[ClientSession]:
    """An installation that follows the source `x` of `far`."""
    async with serving(far), running(feed=HttpFeed(keys)) as near, client(near) as http:
        allow(keys, far.url)
        asked = {"name": "x", "url": far.url, "public_key": b64(SIGNER.public)}
        await ask(http, "POST", SOURCES, asked | {"api_key_file": "far"})
        yield http


async def shows(http: ClientSession, **wanted: Any) -> dict[str, Any]:
    """The row of the source `x`, once it is as wanted: what `huginn source ls` shows of it."""
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update(await row(http, "x"))
        return {name: found.get(name) for name in wanted} == wanted

    try:
        await until(is_so)
    except TimeoutError:
        raise AssertionError(f"{found} is never {wanted}") from None
    return found


HEALTHY: dict[str, Any] = {
    "state": "following",
    "reason": None,
    "parked": 0,
    "equivocations": 0,
}


@pytest.mark.req("EVT-10")
async def test_each_fault_of_the_line_is_shown_and_so_is_its_end(tmp_path: Path) -> None:
    """Dropped, out of order, repeated and cut off; at the end it is the same log."""
    entries = chain(9)
    bodies = [entry.body for entry in entries]
    # Number 3 is dropped and nobody gives it: what comes after it is parked.
    far = FarSide(bodies[:2], streams=[[said(entries[4])]])
    async with following(far, tmp_path) as http:
        missing = "numbers 3 … 4 are not given, and 1 later ones wait for them"
        await shows(http, **HEALTHY | {"state": "disconnected", "reason": missing, "parked": 1})
        # Now it is given, the parked one again with it; then some repeat, in another order.
        far.streams = [[said(entries[6]), said(entries[5])]]
        far.entries = bodies[:7]
        await shows(http, **HEALTHY | {"head": 7, "reason": "3 entries came more than once"})
        far.statuses = [503] * 1000
        far.cut.set()
        cut = "the other installation is in trouble: status 503"
        await shows(http, **HEALTHY | {"state": "disconnected", "reason": cut, "head": 7})
        far.cut.clear()
        far.statuses.clear()
        far.entries = bodies
        await shows(http, **HEALTHY | {"head": 9, "reason": "3 entries came more than once"})
        page = await ask(http, "GET", f"{SOURCES}/x/events")
        assert [each["entry"] for each in page["data"]] == [b64(body) for body in bodies]


@pytest.mark.req("EVT-10")
async def test_junk_in_the_stream_is_shown_and_the_stream_tried_again(tmp_path: Path) -> None:
    entries = chain(4)
    far = FarSide([entry.body for entry in entries[:1]], streams=[[b"data: 7\n\n"]])
    async with following(far, tmp_path) as http:
        found = await shows(http, head=1, state="following", parked=0, equivocations=0)
        while not found["reason"]:
            found = await row(http, "x")
        assert found["state"] == "following"
        assert found["reason"].startswith("its stream was refused, and is tried again: ")
        far.entries = [entry.body for entry in entries[:3]]
        far.streams = [[said(entries[3])]]
        # By a page, and then by the stream.
        await shows(http, **HEALTHY | {"head": 4})


async def test_cut_reordered_and_repeated_it_is_the_same_log(tmp_path: Path) -> None:
    entries = chain(9)
    far = FarSide([entry.body for entry in entries[:3]])
    order = [entries[index] for index in (2, 4, 0, 3)]
    far.streams = [[said(entry) for entry in order], [said(entries[3])], []]
    far.statuses = [503, 503]
    async with following(far, tmp_path) as http:

        async def at_three() -> bool:
            return (await row(http, "x"))["head"] >= 3

        await until(at_three)
        far.entries = [entry.body for entry in entries]

        async def whole() -> bool:
            found = await row(http, "x")
            return (found["state"], found["head"]) == ("following", 9)

        await until(whole)
        page = await ask(http, "GET", f"{SOURCES}/x/events")
        assert [each["entry"] for each in page["data"]] == [b64(entry.body) for entry in entries]


async def test_a_lie_is_named(tmp_path: Path) -> None:
    entries = chain(3)
    fork = entry_after(position(entries[1]), "another story")
    far = FarSide([entry.body for entry in entries[:2]], streams=[[said(entries[2]), said(fork)]])
    async with following(far, tmp_path) as http:

        async def forked() -> bool:
            return bool((await row(http, "x"))["state"] == "forked")

        await until(forked)
        found = await row(http, "x")
        assert (found["head"], found["equivocations"]) == (3, 1)
        assert str(fork.id) in found["reason"]


async def test_entries_that_somebody_else_signed(tmp_path: Path) -> None:
    far = FarSide([entry.body for entry in chain(2, signer=SIGNERS[1])])
    async with following(far, tmp_path) as http:

        async def refused() -> bool:
            return bool((await row(http, "x"))["state"] == "refused")

        await until(refused)
        found = await row(http, "x")
        assert (found["head"], found["equivocations"]) == (0, 0)
        assert found["reason"].startswith("foreign")
