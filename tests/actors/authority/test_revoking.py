"""Revoking: durable, then announced, then answered, whoever goes away or is down."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

import pytest

from actors.authority.room import AuthorityRoom
from actors.room import Room
from protocol.capability import attenuate
from protocol.envelope import Envelope, decode_envelope, seal_error
from protocol.errors import CapabilityError, FaultError, NotVisible, Unavailable
from protocol.messages import authority as messages
from protocol.messages import erasure
from protocol.messages import ropes as ropes_messages
from protocol.signing import Signer
from tests.authority_asks import audit, epoch, listed, revoke
from tests.rooms import SECOND, Installation, Post, Principal
from tests.worker_rooms import until


@pytest.mark.req("AUT-4")
async def test_a_revocation_is_durable_then_announced_then_answered(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    order: list[tuple[str, int]] = []

    async def note(answered: Envelope) -> None:
        order.append((f"{answered.room} {answered.op}", len(house.tables.rows("revoked"))))

    house.post.meanwhile = note
    # The worker and the gateway do not run: that holds nothing up.
    assert await revoked(operator, "alice") == messages.Revoked()
    assert order == [
        ("assembler revocations", 1),
        ("ropes revocations", 1),
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


@dataclass
class Deaf:
    """`room`, which runs and takes no revocations while it is `deaf`."""

    room: Room
    deaf: bool = True

    async def receive(self, message: bytes) -> bytes:
        if self.deaf and decode_envelope(message).op == "revocations":
            return seal_error(Unavailable("200000 invocations within the last minute; try later"))
        return await self.room.receive(message)


async def revoked(by: Principal, name: str) -> messages.Revoked:
    ask = messages.Revoke(name=name)
    return await by.caller.ask("authority", "revoke", ask, messages.Revoked, administer=True)


async def refused(who: Principal) -> bool:
    """Whether ropes refuses what `who` asks because it is revoked."""
    ask = ropes_messages.GetObjects(ids=[])
    try:
        await who.caller.ask("ropes", "get", ask, ropes_messages.Objects)
    except CapabilityError as error:
        return error.step == "revocation"
    except NotVisible:
        pass
    return False


@pytest.mark.req("AUT-4")
async def test_a_room_that_takes_no_message_is_named_and_told_until_it_has_taken_it(
    house: Installation, operator: Principal
) -> None:
    alice, bob = await house.enroll("alice"), await house.enroll("bob")
    ropes = Deaf(house.post.rooms["ropes"])
    house.post.rooms["ropes"] = ropes  # type: ignore[assignment]
    assert (await revoked(operator, "alice")).waiting == ["ropes"]
    # It is durable all the same, and the others know.
    assert audit(house)[-1] == ("revoke", "alice")
    assert house.post.rooms["assembler"].epoch == 1
    assert not await refused(alice)
    ropes.deaf = False
    await until(lambda: ropes.room.epoch == 1)
    assert await refused(alice)
    # A later answer names nobody, and what it tells is all that is revoked.
    assert await revoked(operator, "bob") == messages.Revoked()
    assert await refused(bob)


@pytest.mark.req("AUT-4")
async def test_a_message_that_got_lost_is_sent_again_at_once(
    house: Installation, operator: Principal
) -> None:
    """Nobody can say whether the room runs: it may."""
    alice = await house.enroll("alice")
    lost = [FaultError("no answer: nobody knows whether it runs")]
    call = house.post.call

    class Losing(Post):
        async def call(self, room: str, message: bytes) -> bytes:
            if room == "ropes" and decode_envelope(message).op == "revocations" and lost:
                raise lost.pop()
            return await call(room, message)

    authority = house.post.rooms["authority"]
    authority.world = replace(authority.world, mailbox=Losing())
    assert await revoked(operator, "alice") == messages.Revoked()
    assert lost == []
    assert await refused(alice)


@pytest.mark.req("AUT-4")
async def test_what_is_taken_back_names_the_rooms_too(house: Installation) -> None:
    alice = await house.enroll("alice")
    chain = attenuate(
        alice.row.chain, alice.signer, audience=Signer(b"g" * 32).public, nonce=b"n" * 16
    )
    ropes = Deaf(house.post.rooms["ropes"])
    house.post.rooms["ropes"] = ropes  # type: ignore[assignment]
    ask = messages.TakeBack(chain=list(chain))
    told = await alice.caller.ask("authority", "take_back", ask, messages.TakenBack)
    assert told.waiting == ["ropes"]
    ropes.deaf = False
    await until(lambda: ropes.room.epoch == 1)


@pytest.mark.req("AUT-4", "AUT-8")
async def test_an_erasure_waits_for_a_room_that_does_not_know_who_is_revoked(
    house: Installation, operator: Principal
) -> None:
    """Else the principal might have the room make again what is being taken away."""
    await house.enroll("alice")
    ropes = Deaf(house.post.rooms["ropes"])
    house.post.rooms["ropes"] = ropes  # type: ignore[assignment]
    ask = erasure.RequestErasure(target="principal", name="alice")
    row = await operator.caller.ask(
        "authority", "request_erasure", ask, erasure.ErasureRow, administer=True
    )
    assert "ropes" not in [done.room for done in row.rooms]
    assert "assembler" in [done.room for done in row.rooms]
    # In the order of the rooms it is the last that waits.
    assert row.waits == "ropes: it has yet to take what is revoked"
    ropes.deaf = False
    authority = house.post.rooms["authority"]
    assert isinstance(authority, AuthorityRoom)
    await until(lambda: ropes.room.epoch == 1)
    await authority.erasures.step()
    again = authority.erasures._find(row.id)
    assert again is not None
    assert "ropes" in [done.room for done in again.row.rooms]


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
