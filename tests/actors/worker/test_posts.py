"""Posts: in order, in one wake, and never lost but by a loop that is gone."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from actors.worker.jobs import Event, Settled
from actors.worker.posts import Posts

EVENTS = [Settled(complete=bool(number % 2), pages=()) for number in range(6)]


async def test_events_arrive_in_order_after_the_flush_and_not_before() -> None:
    posts, heard = Posts(), list[tuple[str, Event]]()
    one = posts.poster(lambda event: heard.append(("one", event)))
    two = posts.poster(lambda event: heard.append(("two", event)))
    for number, event in enumerate(EVENTS):
        (two if number % 2 else one)(event)
    await asyncio.sleep(0)
    assert heard == []
    posts.flush()
    assert heard == [], "nothing is called on the thread that flushes"
    await asyncio.sleep(0)
    assert heard == [("two" if n % 2 else "one", event) for n, event in enumerate(EVENTS)]


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread could have woken it."""

    wakes = 0

    def call_soon_threadsafe(  # type: ignore[override]
        self, *args: Any, **more: Any
    ) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(*args, **more)


def test_a_flush_is_one_wake_and_one_of_nothing_is_none() -> None:
    heard: list[Event] = []

    async def run() -> tuple[int, int, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        posts, start, found = Posts(), loop.wakes, []
        post = posts.poster(heard.append)
        for batch in ([], EVENTS, []):
            for event in batch:
                post(event)
            posts.flush()
            found.append(loop.wakes - start)
            await asyncio.sleep(0)
        return found[0], found[1], found[2]

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        assert runner.run(run()) == (0, 1, 1)
    assert heard == EVENTS


async def test_another_thread_posts_all_while_the_loop_takes_in() -> None:
    posts, heard = Posts(), list[Event]()
    post = posts.poster(heard.append)
    count = 2_000

    def run() -> None:
        for number in range(count):
            post(EVENTS[number % len(EVENTS)])
            if number % 3 == 0:
                posts.flush()
        posts.flush()

    thread = threading.Thread(target=run)
    thread.start()
    async with asyncio.timeout(60):
        while len(heard) < count:
            await asyncio.sleep(0)
    thread.join()
    assert heard == [EVENTS[number % len(EVENTS)] for number in range(count)]


async def test_a_handler_that_fails_takes_no_other_event_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    posts, heard = Posts(), list[Event]()

    def fail(event: Event) -> None:
        raise ValueError("of the test")

    bad, good = posts.poster(fail), posts.poster(heard.append)
    bad(EVENTS[0])
    good(EVENTS[1])
    posts.flush()
    with caplog.at_level(logging.ERROR, logger="huginn.worker"):
        await asyncio.sleep(0)
    assert heard == [EVENTS[1]]
    assert "was not taken in" in caplog.text


def test_a_loop_that_is_closed_hears_no_more() -> None:
    posts = Posts()

    async def poster() -> None:
        posts.poster(lambda event: None)(EVENTS[0])

    asyncio.run(poster())
    posts.flush()
