"""Sources of one installation read by another over HTTP; and by way of someone who lies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web

from actors.events.ports import Hole, Remote
from actors.runtime.remote_feed import HttpFeed
from protocol.errors import FeedLost, FeedRefused
from protocol.event_log import Entry
from tests.event_logs import SIGNER, SIGNERS, chain, entry_after, position
from tests.fake_rooms import Service, running

SOURCES = "/huginn/v1/sources"
KEY = "hg-a-key-of-the-far-side"


@dataclass
class FarSide:
    """Something that answers as an installation does, with whatever the test has it say.

    `statuses` are answered first, one for each ask; `kept_from` is where its log begins. In
    `streams` are what its streams say, one list for each; after the last it stays silent, until it
    is `cut`.
    """

    entries: list[bytes] = field(default_factory=list)
    kept_from: int = 1
    statuses: list[int] = field(default_factory=list)
    streams: list[list[bytes]] = field(default_factory=list)
    content_type: str = "text/event-stream"
    url: str = ""
    asked: list[str] = field(default_factory=list)
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query_string)
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if self.statuses:
            return web.Response(status=self.statuses.pop(0), headers={"Location": "/elsewhere"})
        if "text/event-stream" in request.headers["Accept"]:
            return await self._stream(request)
        after, limit = int(request.query["after"]), int(request.query["limit"])
        first = max(after + 1, self.kept_from)
        data = [{"entry": b64(each)} for each in self.entries[first - 1 : first - 1 + limit]]
        gap = None
        if first > after + 1:
            gap = {"from": after + 1, "to": first - 1, "cause": "retention"}
        return web.json_response({"data": data, "head": len(self.entries), "gap": gap})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.content_type})
        await response.prepare(request)
        if not self.streams:
            await self.cut.wait()
        for piece in self.streams.pop(0) if self.streams else ():
            await response.write(piece)
        assert request.transport is not None
        request.transport.abort()
        return response


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def said(entry: Entry) -> bytes:
    """An entry as a stream says it."""
    return b"data: " + msgspec.json.encode({"entry": b64(entry.body)}) + b"\n\n"


@asynccontextmanager
async def serving(far: FarSide) -> AsyncIterator[FarSide]:
    app = web.Application()
    app.router.add_get(f"{SOURCES}/x/events", far.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    far.url = f"http://127.0.0.1:{runner.addresses[0][1]}{SOURCES}/x"
    try:
        yield far
    finally:
        await runner.cleanup()


def allow(keys: Path, url: str, key: str = KEY, namespace: str = "operator") -> None:
    """Lets the sources of `namespace` ask `url`, showing `key`."""
    path = keys / "far"
    path.write_text(f"{key}\n{url.partition(SOURCES)[0]}\n{namespace}\n")
    path.chmod(0o600)


def remote(url: str, namespace: str = "operator/team") -> Remote:
    return Remote(url, "far", namespace)


@asynccontextmanager
async def asking(keys: Path, **options: Any) -> AsyncIterator[HttpFeed]:
    feed = HttpFeed(keys, **options)
    try:
        yield feed
    finally:
        await feed.close()


async def test_a_page_a_hole_and_a_stream(tmp_path: Path) -> None:
    entries = chain(5)
    far = FarSide([entry.body for entry in entries], kept_from=3)
    gap = b'event: EventStreamGap\ndata: {"from": 6, "to": 7, "cause": "retention"}\n\n'
    overrun = b'event: EventStreamGap\ndata: {"from": 1, "to": 2, "cause": "overrun"}\n\n'
    whole = b": ping\n\nid: 4\n" + said(entries[3]) + overrun + gap + said(entries[4])
    far.streams = [[whole[:9], whole[9:200], whole[200:]]]
    async with serving(far), asking(tmp_path) as feed:
        allow(tmp_path, far.url)
        page = await feed.page(remote(far.url), 0, 2, 3 * 10**9)
        assert page.entries == [entries[2].body, entries[3].body]
        assert (page.head, page.hole) == (5, Hole(1, 2))
        assert far.asked == ["after=0&limit=2&wait_s=3"]
        stream = feed.stream(remote(far.url), 3)
        items = [await anext(stream) for _ in range(3)]
        assert items == [entries[3].body, Hole(6, 7), entries[4].body]
        with pytest.raises(FeedLost):
            await anext(stream)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *[(status, FeedRefused) for status in (302, 400, 401, 403, 404)],
        *[(status, FeedLost) for status in (408, 429, 500, 503)],
    ],
)
async def test_statuses(tmp_path: Path, status: int, error: type[Exception]) -> None:
    async with serving(FarSide(statuses=[status])) as far, asking(tmp_path) as feed:
        allow(tmp_path, far.url)
        with pytest.raises(error, match=str(status)):
            await feed.page(remote(far.url), 0, 1, 0)
    assert len(far.asked) == 1, "a redirect is not followed"


async def test_what_is_no_answer(tmp_path: Path) -> None:
    liar, quick = FarSide([b"x"], content_type="text/plain"), {"silence_seconds": 0.2}
    async with serving(liar) as far, asking(tmp_path, **quick) as feed:
        allow(tmp_path, far.url)
        far.streams = [[b""]]
        with pytest.raises(FeedRefused, match="text/plain"):
            await anext(feed.stream(remote(far.url), 0))
        far.content_type = "text/event-stream"
        for words in (b'data: {"entry": "?"}\n\n', b"data: 7\n\n"):
            far.streams = [[words]]
            with pytest.raises(FeedRefused):
                await anext(feed.stream(remote(far.url), 0))
        far.streams = [[b'data: {"error": {}}\n\n']]
        with pytest.raises(FeedLost, match="error"):
            await anext(feed.stream(remote(far.url), 0))
        # Silent for longer than an installation ever is.
        with pytest.raises(FeedLost):
            await anext(feed.stream(remote(far.url), 0))
    async with asking(tmp_path) as feed:
        with pytest.raises(FeedLost):
            await feed.page(remote(far.url), 0, 1, 0)


def test_only_what_the_operator_allowed_is_asked(tmp_path: Path) -> None:
    feed, url = HttpFeed(tmp_path), f"http://far:7717{SOURCES}/x"
    allow(tmp_path, url)
    feed.check(remote(url))
    feed.check(remote(url, "operator"))
    wrong = [
        remote(f"http://far:7718{SOURCES}/x"),
        remote(f"https://far:7717{SOURCES}/x"),
        remote(f"http://far:7717@evil{SOURCES}/x"),
        remote(f"http://far:7717{SOURCES}/x?y=1"),
        remote(f"http://far:7717{SOURCES}/x#y"),
        remote(f"http://far:7717{SOURCES}/x/../../keys"),
        remote("http://far:7717/huginn/v1/keys"),
        remote(f"file://far:7717{SOURCES}/x"),
        remote(url, "operators"),
        remote(url, "client"),
        Remote(url, "../far", "operator"),
        Remote(url, "nothing", "operator"),
    ]
    for each in wrong:
        with pytest.raises(FeedRefused):
            feed.check(each)
    (tmp_path / "far").chmod(0o640)
    with pytest.raises(FeedRefused, match="0600"):
        feed.check(remote(url))
    (tmp_path / "far").chmod(0o600)
    (tmp_path / "far").write_text("only a-key")
    with pytest.raises(FeedRefused, match="three words"):
        feed.check(remote(url))


# -- two installations ---------------------------------------------------------------------------


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
