"""Revocation at a room's edge: from the next message on, and only by the authority's word."""

from __future__ import annotations

from random import Random

import pytest

from protocol.envelope import Envelope, open_reply, seal
from protocol.errors import CapabilityError, ContentError, HuginnError, InvocationError
from protocol.messages import Empty
from protocol.messages.authority import Revocations, Revoke, Revoked
from protocol.record import encode_record
from tests.echo_house import EVERY, OPERATIONS, Echo, House, Say, kept, said
from tests.records import Sampler
from tests.rooms import ROOMS, SECOND, Installation, opened, reply_to
from tests.worker_rooms import until


def notice(installation: Installation, sender: str, revocations: Revocations) -> bytes:
    """A notice to the echo, signed by the room `sender` under its own service handle."""
    world = installation.world(sender)
    return seal(
        world.service_chain,
        world.signer,
        room="worker",
        op="revocations",
        body=encode_record(revocations),
        ts_ns=installation.clock.wall_ns(),
        nonce=installation.entropy.draw(16),
        request_id=sender,
    )


async def revoked(house: House, name: str) -> Revocations:
    """Revoke `name`; all that is revoked then."""
    operator = house.operator.caller
    await operator.ask("authority", "revoke", Revoke(name=name), Empty, administer=True)
    return await operator.ask("authority", "current", Empty(), Revocations, administer=True)


@pytest.mark.req("AUT-2", "AUT-4")
async def test_only_the_authority_announces_revocations(house: House) -> None:
    known = await revoked(house, "alice")
    later = Revocations(epoch=known.epoch + 5, revoked=[])
    for sender in ("ropes", "worker", "gateway"):
        reply = await house.echo.receive(notice(house.installation, sender, later))
        with pytest.raises(ContentError, match="only the authority"):
            open_reply(reply)
    operator = house.operator.caller
    with pytest.raises(ContentError, match="only the authority"):
        await operator.ask("worker", "revocations", later, Empty, administer=True)
    with pytest.raises(InvocationError, match="operate"):
        await house.bob.caller.ask("worker", "revocations", later, Empty)
    with pytest.raises(CapabilityError, match="revoked"):
        await house.ask(said(house))


@pytest.mark.req("AUT-4")
async def test_an_older_epoch_brings_nobody_back(house: House) -> None:
    known = await revoked(house, "alice")
    for epoch in (0, known.epoch - 1, known.epoch):
        stale = Revocations(epoch=epoch, revoked=[])
        reply = await house.echo.receive(notice(house.installation, "authority", stale))
        assert opened(reply, Empty) == Empty()
        with pytest.raises(CapabilityError, match="revoked"):
            await house.ask(said(house))
    newer = Revocations(epoch=known.epoch + 1, revoked=[])
    await house.echo.receive(notice(house.installation, "authority", newer))
    assert await house.ask(said(house)) == Say(what="x")


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize(("room", "op"), [*EVERY, ("worker", "say"), ("worker", "spell")])
async def test_the_revoked_are_refused_at_every_room_from_the_next_message(
    house: House, room: str, op: str
) -> None:
    installation = house.installation
    operation = Echo.operations[op] if room == "worker" else OPERATIONS[room][op]
    ask = Sampler(Random(op)).record(operation.ask)

    async def refused_at() -> str | None:
        message = house.alice.message(room, op, ask)
        if operation.streams:
            reply = await anext(aiter(installation.post.stream(room, message)))
        else:
            reply = await installation.post.call(room, message)
        try:
            open_reply(reply)
        except HuginnError as refusal:
            return str(refusal.details.get("step"))
        return None

    # The same chain of a principal, verified and remembered there before.
    assert await refused_at() != "revocation"
    await revoked(house, "alice")
    before = kept(installation)
    assert await refused_at() == "revocation"
    assert kept(installation) == before


@pytest.mark.req("AUT-4")
async def test_a_room_that_starts_later_knows(house: House) -> None:
    await revoked(house, "alice")
    house.installation.clock.now_ns += SECOND
    for name in ROOMS:
        await house.installation.restart(name)
    fresh = Echo(house.installation.world("worker"))
    await house.installation.add(fresh)
    for room, op in (("worker", "say"), ("ropes", "get"), ("assembler", "show")):
        with pytest.raises(CapabilityError, match="revoked"):
            opened(await reply_to(house.alice, room, op, Say(what="x")), Say)


@pytest.mark.req("AUT-4")
async def test_a_room_that_is_too_busy_to_be_told_is_named_and_told_when_it_is_not(
    house: House,
) -> None:
    """It takes no message now, and its streams go on: the answer does not hide that."""
    ask = house.alice.message("worker", "spell", Say(what="xyz"))
    spelled = house.installation.post.stream("worker", ask)
    assert opened(await anext(spelled), Say) == Say(what="x")
    window = house.echo._door.nonces
    window._nonces_max = len(window)
    done = await house.operator.caller.ask(
        "authority", "revoke", Revoke(name="alice"), Revoked, administer=True
    )
    assert done.waiting == ["worker"]
    assert opened(await anext(spelled), Say) == Say(what="y")
    # A minute later there is room again.
    house.installation.clock.now_ns += 61 * SECOND
    await until(lambda: house.echo.epoch == 1, pause_s=0.005)
    with pytest.raises(CapabilityError, match="revoked"):
        opened(await anext(spelled), Say)


@pytest.mark.req("AUT-4")
async def test_a_notice_that_overtakes_the_state_asked_for_at_a_start_stands(
    house: House,
) -> None:
    """The authority answers `current`, then revokes and announces; the answer arrives last."""
    post = house.installation.post
    fresh = Echo(house.installation.world("worker"))
    post.rooms["worker"] = fresh
    overtaken = False

    async def revoke(answered: Envelope) -> None:
        nonlocal overtaken
        if answered.op == "current" and not overtaken:
            overtaken = True
            await revoked(house, "alice")

    post.meanwhile = revoke
    await fresh.start()
    assert overtaken
    with pytest.raises(CapabilityError, match="revoked"):
        opened(await fresh.receive(said(house)), Say)
