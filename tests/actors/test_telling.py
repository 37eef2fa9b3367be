"""Telling: at once, again until it is taken, and no longer than its caller has patience."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from actors.telling import Telling
from protocol.errors import FaultError, HuginnError, Unavailable
from tests.worker_rooms import until


class Rooms:
    """Rooms that were told so often, and what stands in the way of telling them. `gone` do not run;
    `held` take nothing before `go_on`."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.refusals: dict[str, Iterator[HuginnError]] = {}
        self.gone: set[str] = set()
        self.held: set[str] = set()
        self.go_on = asyncio.Event()

    async def say(self, room: str) -> bool:
        self.said.append(room)
        if room in self.held:
            await self.go_on.wait()
        for error in self.refusals.get(room, iter(())):
            raise error
        return room not in self.gone


@pytest.mark.req("AUT-4")
async def test_each_is_told_once_and_one_that_is_gone_is_not_waited_for() -> None:
    rooms = Rooms()
    rooms.gone = {"b"}
    telling = Telling(rooms.say, patience_seconds=60)
    assert await telling.tell(["a", "b"]) == []
    assert (rooms.said, telling.waiting) == (["a", "b"], [])
    assert await telling.tell([]) == []


@pytest.mark.req("AUT-4")
async def test_what_is_refused_is_said_again_until_it_is_taken() -> None:
    rooms = Rooms()
    rooms.refusals["a"] = iter([Unavailable("full"), FaultError("lost"), Unavailable("full")])
    telling = Telling(rooms.say, patience_seconds=60)
    assert await telling.tell(["a", "b"]) == []
    assert rooms.said == ["a", "b", "a", "a", "a"]


@pytest.mark.req("AUT-4")
async def test_what_outlasts_the_patience_goes_on_behind() -> None:
    rooms = Rooms()
    rooms.held = {"a"}
    telling = Telling(rooms.say, patience_seconds=0.01)
    assert await telling.tell(["a", "b"]) == ["a"]
    assert telling.waiting == ["a"]
    rooms.go_on.set()
    await until(lambda: not telling.waiting)
    assert rooms.said == ["a", "b"]


@pytest.mark.req("AUT-4")
async def test_a_message_that_was_out_already_does_not_count() -> None:
    """It may say less than what holds now: the room is told again."""
    rooms = Rooms()
    rooms.held = {"a"}
    telling = Telling(rooms.say, patience_seconds=0.01)
    assert await telling.tell(["a"]) == ["a"]
    assert await telling.tell(["a"]) == ["a"]
    rooms.go_on.set()
    await until(lambda: not telling.waiting)
    assert rooms.said == ["a", "a"]


async def test_drained_it_says_nothing_more() -> None:
    rooms = Rooms()
    rooms.held = {"a"}
    telling = Telling(rooms.say, patience_seconds=0.01)
    await telling.tell(["a"])
    await telling.drain()
    assert telling.waiting == []
    rooms.go_on.set()
    await asyncio.sleep(0)
    assert rooms.said == ["a"]
