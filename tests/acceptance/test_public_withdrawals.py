"""Who publishes, and what a withdrawal takes back: whatever runs, restarts or fails meanwhile."""

from __future__ import annotations

import pytest
from msgspec import structs

from protocol.errors import AuthorityError, CapabilityError, NotVisible, StoreFault
from protocol.ids import BlockId
from protocol.messages import Empty
from protocol.messages.ropes import Publications, Publish, Withdraw
from protocol.messages.worker import Item, Settle
from protocol.publication import state_prefix
from protocol.resource import Right
from store.pages.header import domain_digest
from tests.block_samples import model, user
from tests.public_house import GUIDE, SYSTEM, PublicHouse, seer
from tests.rooms import opened


@pytest.mark.req("AUT-2", "AUT-5")
async def test_publishing_needs_the_operators_right(house: PublicHouse) -> None:
    block = await house.publish(SYSTEM)
    alice = await house.house.enroll("alice")
    pair, text = GUIDE
    for op, ask in [
        ("publish", Publish(block=pair, content=text.encode())),
        ("withdraw", Withdraw(block=block)),
        ("withdraw", Withdraw(block=BlockId(bytes(32)))),
        ("publications", Empty()),
    ]:
        reply = await house.post.call("ropes", alice.message("ropes", op, ask))
        with pytest.raises(AuthorityError):
            opened(reply, Empty)
    # A room's own handle may ask what is public, and change nothing.
    for op, ask in [
        ("publish", Publish(block=pair, content=text.encode())),
        ("withdraw", Withdraw(block=block)),
    ]:
        with pytest.raises(CapabilityError) as refusal:
            await house.worker.ask_as_self("ropes", op, ask, Empty)
        assert refusal.value.step == "scope"
    found = await house.worker.ask_as_self("ropes", "publications", Empty(), Publications)
    assert [row.block for row in found.blocks] == [block]
    # Nor does anybody but the ropes room tell a worker what is public.
    reply = await house.post.call(
        "worker", house.operator.message("worker", "publications", Empty())
    )
    with pytest.raises(AuthorityError):
        opened(reply, Empty)
    assert Right.OPERATE not in alice.caller._leaf.rights


@pytest.mark.req("AUT-5")
async def test_what_a_caller_claims_to_be_public_is_refused(house: PublicHouse) -> None:
    """A forged statement, and a true one on other tokens: nothing is derived, nothing is kept."""
    await house.publish(SYSTEM)
    mallory = await seer(house, "mallory")
    _, job = await house.job(mallory, [user("a private page"), user("hello")])
    _, honest = await house.job(mallory, [SYSTEM, user("hello")])
    assert job.public is None
    assert honest.public is not None
    own = state_prefix(mallory.signer, "raven", job.segments[:1])
    worker_signed = state_prefix(house.house.signers["worker"], "raven", job.segments[:1])
    stolen = honest.segments[0].block
    disguised = [structs.replace(job.segments[0], block=stolen), *job.segments[1:]]
    grown = [honest.segments[0], structs.replace(honest.segments[1], role="model")]
    other_role = [structs.replace(honest.segments[0], role="model"), *honest.segments[1:]]
    forged = [
        (job.segments, own),
        (job.segments, worker_signed),
        (job.segments, honest.public),
        (disguised, honest.public),
        (other_role, honest.public),
        (job.segments, b""),
        (job.segments, honest.public[:-1] + bytes((honest.public[-1] ^ 1,))),
    ]
    for segments, statement in forged:
        ask = structs.replace(job, segments=segments, public=statement)
        with pytest.raises(AuthorityError) as refusal:
            [item async for item in mallory.caller.stream("worker", "generate", ask, Item)]
        assert refusal.value.step == "public"
        later = Settle(response="s", segments=segments, public=statement)
        with pytest.raises(AuthorityError):
            await mallory.caller.ask("worker", "settle", later, Empty)
    assert house.backend.length(0) == 0
    assert house.kept("public") == house.kept("mallory") == 0
    # What follows the public part may be anything: it stays private, however it is dressed.
    ask = structs.replace(honest, segments=grown)
    assert [item async for item in mallory.caller.stream("worker", "generate", ask, Item)]
    assert house.kept("public") // 2 == -(-len(honest.segments[0].content) // 4 // 64) - 1


@pytest.mark.req("AUT-5")
async def test_a_statement_of_what_was_withdrawn_makes_nothing_public(house: PublicHouse) -> None:
    block = await house.publish(SYSTEM)
    alice = await seer(house, "alice")
    _, late = await house.job(alice, [SYSTEM, user("late")])
    await house.withdraw(block)
    items = [item async for item in alice.caller.stream("worker", "generate", late, Item)]
    receipt = items[-1].receipt
    assert receipt is not None
    assert receipt.public_tokens is None
    assert house.kept("public") == 0


@pytest.mark.req("AUT-5", "AUT-8")
async def test_a_withdrawal_deletes_the_public_pages(house: PublicHouse) -> None:
    block = await house.publish(SYSTEM)
    alice, bob = await seer(house, "alice"), await seer(house, "bob")
    talk = [SYSTEM, user("hello")]
    await house.turn(alice, talk)
    assert house.kept("public") > 0
    await house.withdraw(block)
    assert house.kept("public") == 0
    assert not (house.pages / domain_digest("public").hex()).exists()
    # No stream serves another domain any more either.
    told = await house.turn(bob, talk)
    assert told.known.reused_tokens == 0
    assert told.known.public_tokens is None
    assert house.kept("public") == 0
    # Whose own it is may go on with it.
    again = await house.turn(alice, [*talk, model("hi"), user("well?")])
    assert again.known.reused_tokens > 0
    with pytest.raises(NotVisible):
        await house.withdraw(block)
    # And published again, it is shared again.
    await house.publish(SYSTEM)
    carol, dora = await seer(house, "carol"), await seer(house, "dora")
    await house.turn(carol, talk)
    assert (await house.turn(dora, talk)).known.reused_tokens > 0


@pytest.mark.req("AUT-5")
async def test_a_withdrawal_in_the_middle_of_an_answer_publishes_no_more(
    house: PublicHouse,
) -> None:
    block = await house.publish(SYSTEM)
    alice = await seer(house, "alice")
    _, job = await house.job(alice, [SYSTEM, user("go on")])
    items = alice.caller.stream("worker", "generate", job, Item)
    first = await anext(items)
    assert first.kind == "prefill"
    await house.withdraw(block)
    assert [item async for item in items][-1].finish is not None
    bob = await seer(house, "bob")
    assert (await house.turn(bob, [SYSTEM, user("go on")])).known.reused_tokens == 0
    assert house.kept("public") == 0


@pytest.mark.req("AUT-5", "KV-6")
async def test_what_is_public_survives_a_restart_and_so_does_its_withdrawal(
    house: PublicHouse,
) -> None:
    block = await house.publish(SYSTEM)
    await house.turn(await seer(house, "alice"), [SYSTEM, user("one")])
    house.kept("public")
    await house.restart()
    told = await house.turn(await seer(house, "bob"), [SYSTEM, user("two")])
    assert told.known.tiers["disk"] == told.known.public_tokens is not None
    # Withdrawn while the worker is down: it finds out before it serves.
    await house.stop_worker()
    await house.withdraw(block)
    assert (house.pages / domain_digest("public").hex()).exists()
    await house.start_worker()
    assert house.kept("public") == 0
    told = await house.turn(await seer(house, "carol"), [SYSTEM, user("three")])
    assert told.known.reused_tokens == 0
    assert told.known.public_tokens is None


@pytest.mark.req("AUT-5", "AUT-8")
async def test_a_withdrawal_that_cannot_delete_is_not_acknowledged(house: PublicHouse) -> None:
    block = await house.publish(SYSTEM)
    alice = await seer(house, "alice")
    await house.turn(alice, [SYSTEM, user("one")])
    house.kept("public")
    house.broken = True
    with pytest.raises(StoreFault, match="could not be erased"):
        await house.withdraw(block)
    # It is private all the same, and can be asked for again until nothing is left.
    talk = [SYSTEM, user("one")]
    told = await house.turn(await seer(house, "bob"), talk)
    assert told.known.reused_tokens == 0
    with pytest.raises(StoreFault):
        await house.withdraw(block)
    house.broken = False
    with pytest.raises(NotVisible):
        await house.withdraw(block)
    assert house.kept("public") == 0
