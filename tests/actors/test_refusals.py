"""Refusals: told in batches, a flood counted, and none lost while the authority is away."""

from __future__ import annotations

import pytest

from actors.refusals import TOLD_PER_MINUTE, RefusalQueue
from protocol.errors import Unavailable
from protocol.messages.authority import Refused
from tests.chains import PRINCIPAL, principal_chain
from tests.worker_rooms import HandClock


class Authority:
    """What was told; `away`: nobody hears it."""

    def __init__(self) -> None:
        self.heard: list[Refused] = []
        self.away = False

    async def tell(self, refused: Refused) -> None:
        if self.away:
            raise Unavailable("there is no authority room now")
        self.heard.append(refused)


async def test_what_was_refused_is_told_together() -> None:
    authority = Authority()
    clock = HandClock()
    queue = RefusalQueue(clock, authority.tell)
    queue.put("anchor", "commit", "r1", principal_chain())
    queue.put("decode", "get", "r2", [b"rubbish"])
    queue.put("key", "GET /v1/models", "r3")
    assert (len(queue), authority.heard) == (3, [])
    await queue.settle()
    (told,) = authority.heard
    assert [(each.step, each.op, each.request_id) for each in told.refusals] == [
        ("anchor", "commit", "r1"),
        ("decode", "get", "r2"),
        ("key", "GET /v1/models", "r3"),
    ]
    assert [each.principal for each in told.refusals] == [PRINCIPAL.public, None, None]
    assert {each.at_ns for each in told.refusals} == {clock.wall_ns()}
    assert (len(queue), told.counted) == (0, {})


@pytest.mark.req("AUT-8")
async def test_a_flood_is_counted_by_step() -> None:
    authority = Authority()
    clock = HandClock()
    queue = RefusalQueue(clock, authority.tell)
    for number in range(10_000):
        queue.put("nonce" if number % 4 else "signature", "commit", str(number))
    await queue.settle()
    (told,) = authority.heard
    assert len(told.refusals) == TOLD_PER_MINUTE
    counts = {"nonce": 0, "signature": 0}
    for each in told.refusals:
        counts[each.step] += 1
    for step, count in told.counted.items():
        counts[step] += count
    assert counts == {"nonce": 7_500, "signature": 2_500}
    # A minute later they are told one by one again.
    clock.now_ns += 60 * 10**9
    queue.put("nonce", "commit", "later")
    await queue.settle()
    assert [each.request_id for each in authority.heard[-1].refusals] == ["later"]


@pytest.mark.req("AUT-8")
async def test_what_could_not_be_told_is_counted_and_told_later() -> None:
    authority = Authority()
    authority.away = True
    queue = RefusalQueue(HandClock(), authority.tell)
    for _ in range(3):
        queue.put("time", "get", "r")
    await queue.settle()
    assert (len(queue), authority.heard) == (3, [])
    authority.away = False
    queue.put("right", "get", "r4")
    await queue.settle()
    (told,) = authority.heard
    assert [each.step for each in told.refusals] == ["right"]
    assert told.counted == {"time": 3}
    assert len(queue) == 0


async def test_a_queue_of_nobody_takes_nothing() -> None:
    queue = RefusalQueue(HandClock(), None)
    queue.put("time", "get", "r")
    await queue.settle()
    assert len(queue) == 0
