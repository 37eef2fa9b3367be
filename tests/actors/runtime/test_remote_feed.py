"""Reading another installation over HTTP: pages, holes, streams, and what is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.events.ports import Hole, Remote
from actors.runtime.remote_feed import HttpFeed
from protocol.errors import FeedLost, FeedRefused
from tests.event_logs import chain
from tests.far_side import SOURCES, FarSide, allow, asking, remote, said, serving


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
