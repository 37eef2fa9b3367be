"""Revoking: durable, then announced, then answered, whoever goes away or is down."""

from __future__ import annotations

import asyncio
import logging

import pytest

from protocol.envelope import Envelope
from protocol.errors import CapabilityError
from protocol.messages import authority as messages
from protocol.messages import ropes as ropes_messages
from tests.authority_asks import audit, epoch, listed, revoke
from tests.rooms import SECOND, Installation, Principal


@pytest.mark.req("AUT-4")
async def test_a_revocation_is_durable_then_announced_then_answered(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    order: list[tuple[str, int]] = []

    async def note(answered: Envelope) -> None:
        order.append((f"{answered.room} {answered.op}", len(house.tables.rows("revoked"))))

    house.post.rooms["worker"] = house.post.rooms["ropes"]
    house.post.meanwhile = note
    await revoke(operator, "alice")
    # The worker's place is taken by another room, which refuses; that holds nothing up.
    assert order == [
        ("assembler revocations", 1),
        ("ropes revocations", 1),
        ("worker revocations", 1),
        ("authority revoke", 1),
    ]
    assert audit(house)[-1] == ("revoke", "alice")
    assert await epoch(operator) == 1


@pytest.mark.req("AUT-4")
async def test_a_revocation_is_announced_also_if_its_caller_goes_away(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    announcing, go_on = asyncio.Event(), asyncio.Event()

    async def hold(answered: Envelope) -> None:
        if (answered.room, answered.op) == ("assembler", "revocations"):
            announcing.set()
            await go_on.wait()

    house.post.meanwhile = hold
    asking = asyncio.create_task(revoke(operator, "alice"))
    await announcing.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    go_on.set()
    async with asyncio.timeout(60):
        while not house.post.asked("ropes", "revocations", messages.Revocations):
            await asyncio.sleep(0)
    with pytest.raises(CapabilityError, match="revoked"):
        await alice.caller.ask(
            "ropes", "get", ropes_messages.GetObjects(ids=[]), ropes_messages.Objects
        )


@pytest.mark.req("AUT-4")
async def test_a_room_that_is_down_is_a_warning_and_learns_at_its_start(
    house: Installation, operator: Principal, caplog: pytest.LogCaptureFixture
) -> None:
    alice = await house.enroll("alice")
    house.post.down = {"ropes"}
    with caplog.at_level(logging.WARNING):
        await revoke(operator, "alice")
    told = [record.getMessage() for record in caplog.records]
    assert any("the ropes room was not told of epoch 1" in line for line in told)
    assert any("the worker room was not told" in line for line in told)
    assert not any("the assembler room" in line for line in told)
    house.post.down = set()
    house.clock.now_ns += SECOND
    await house.restart("ropes")
    with pytest.raises(CapabilityError, match="revoked"):
        await alice.caller.ask(
            "ropes", "get", ropes_messages.GetObjects(ids=[]), ropes_messages.Objects
        )


@pytest.mark.req("AUT-4")
async def test_revocations_outlive_the_authority(house: Installation, operator: Principal) -> None:
    alice = await house.enroll("alice", administers=True)
    await revoke(operator, "alice")
    assert await epoch(operator) == 2
    house.clock.now_ns += SECOND
    await house.restart("authority")
    with pytest.raises(CapabilityError, match="revoked"):
        await listed(alice)
    assert [row.revoked for row in await listed(operator)] == [False, True]


@pytest.mark.req("AUT-4")
async def test_one_who_revokes_itself_is_revoked(house: Installation, operator: Principal) -> None:
    await revoke(operator, "operator")
    with pytest.raises(CapabilityError, match="revoked"):
        await listed(operator)
