"""Handles below one's own: told, listed and taken back by their giver alone."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import cbor
from protocol.capability import attenuate, decode_link
from protocol.envelope import seal
from protocol.errors import CapabilityError, ContentError, NotVisible
from protocol.ids import CapabilityId
from protocol.messages import Empty
from protocol.messages.authority import (
    HandedOut,
    HandedRow,
    HandOut,
    Revocations,
    TakeBack,
    TakenBack,
)
from protocol.messages.ropes import GetObjects, Objects
from protocol.record import encode_record
from protocol.resource import Right
from protocol.signing import Signer
from tests.chains import forged
from tests.rooms import SECOND, Installation, Principal, opened

GUEST, OTHER = Signer(b"\x31" * 32), Signer(b"\x32" * 32)
Chain = tuple[bytes, ...]


@pytest.fixture
async def alice(house: Installation) -> Principal:
    return await house.enroll("alice")


def given(by: Principal, to: Signer = GUEST, number: int = 1, **narrowed: Any) -> Chain:
    nonce = bytes([number]) * 16
    return attenuate(by.row.chain, by.signer, audience=to.public, nonce=nonce, **narrowed)


async def tell(by: Principal, chain: Chain) -> HandedRow:
    ask = HandOut(chain=list(chain))
    return await by.caller.ask("authority", "hand_out", ask, HandedRow)


async def listed(by: Principal) -> list[HandedRow]:
    return (await by.caller.ask("authority", "handed_out", Empty(), HandedOut)).handles


async def take_back(by: Principal, what: Chain | CapabilityId) -> TakenBack:
    ask = TakeBack(id=what) if isinstance(what, CapabilityId) else TakeBack(chain=list(what))
    return await by.caller.ask("authority", "take_back", ask, TakenBack)


def leaf(chain: Chain) -> CapabilityId:
    return decode_link(chain[-1]).id


async def works(house: Installation, chain: Chain, holder: Signer) -> bool:
    """Whether ropes answers the holder of `chain`: with no object, it holds none."""
    message = seal(
        chain,
        holder,
        room="ropes",
        op="get",
        body=encode_record(GetObjects(ids=[])),
        ts_ns=house.clock.wall_ns(),
        nonce=house.entropy.draw(16),
        request_id="guest",
    )
    try:
        opened(await house.post.call("ropes", message), Objects)
    except NotVisible:
        return True
    except CapabilityError as error:
        return error.step != "revocation"
    return True


@pytest.mark.req("AUT-4", "AUT-8")
async def test_what_was_given_out_is_listed_and_taken_back(
    house: Installation, alice: Principal
) -> None:
    first = given(alice, rights=[Right.READ])
    second = given(alice, OTHER, 2)
    below = attenuate(first, GUEST, audience=OTHER.public, nonce=b"b" * 16)
    for chain in (first, second, below):
        made = await tell(alice, chain)
        assert (made.id, made.links, made.revoked) == (leaf(chain), len(chain), False)
        assert await tell(alice, chain) == made
    assert [row.id for row in await listed(alice)] == [leaf(first), leaf(second), leaf(below)]
    told = await take_back(alice, leaf(first))
    assert told == TakenBack(id=leaf(first))
    assert await works(house, first, GUEST) is False
    assert await works(house, below, OTHER) is False
    assert await works(house, second, OTHER) is True
    assert [row.revoked for row in await listed(alice)] == [True, False, True]
    # Again is once.
    assert await take_back(alice, leaf(first)) == told
    entries: list[Any] = [cbor.decode(each.body) for each in house.tables.log("audit").entries()]
    acts = [(each["act"], each["subject"]) for each in entries]
    assert acts.count(("revoke", str(leaf(first)))) == 1
    assert acts.count(("delegate", str(leaf(below)))) == 1


@pytest.mark.req("AUT-2", "AUT-4")
@pytest.mark.parametrize("rights", [["generate", "write"], ["emit"], ["telemetry"]])
async def test_whoever_can_give_out_can_take_back(house: Installation, rights: list[str]) -> None:
    """Giving out asks nobody, so no right may be missing for taking back."""
    alice = await house.enroll("alice", rights=rights)
    first, second = given(alice), given(alice, OTHER, 2)
    made = await tell(alice, first)
    assert [row.id for row in await listed(alice)] == [made.id]
    assert await take_back(alice, leaf(first)) == TakenBack(id=leaf(first))
    assert await take_back(alice, second) == TakenBack(id=leaf(second))
    assert await works(house, first, GUEST) is False
    assert await works(house, second, OTHER) is False


@pytest.mark.req("AUT-4")
async def test_one_on_no_record_is_taken_back_whole(house: Installation, alice: Principal) -> None:
    chain = given(alice)
    assert await works(house, chain, GUEST)
    await take_back(alice, chain)
    assert not await works(house, chain, GUEST)
    assert await listed(alice) == []


@pytest.mark.req("AUT-3", "AUT-4")
async def test_taking_back_tells_nothing_of_what_others_took_back() -> None:
    replies = []
    for others in (0, 3):
        house = await Installation().start()
        alice, bob = await house.enroll("alice"), await house.enroll("bob")
        taken = [given(bob, number=number) for number in range(others)]
        for chain in taken:
            await take_back(bob, chain)
        await take_back(alice, given(alice))
        replies.append(house.post.replies[-1])
        # The rooms are told all of it, as ever.
        told = house.post.asked("ropes", "revocations", Revocations)[-1]
        assert told.revoked == sorted(leaf(chain).digest for chain in [*taken, given(alice)])
    assert replies[0] == replies[1]


@pytest.mark.req("AUT-4")
async def test_nobody_else_tells_lists_or_takes_back(house: Installation, alice: Principal) -> None:
    bob = await house.enroll("bob")
    chain = given(alice, bob.signer)
    await tell(alice, chain)
    for what in (chain, leaf(chain)):
        with pytest.raises(NotVisible):
            await take_back(bob, what)
    with pytest.raises(NotVisible):
        await tell(bob, given(alice))
    # The giver's own handle is not below it, nor is one with another's grant above.
    for own in (tuple(alice.row.chain), tuple(bob.row.chain)):
        with pytest.raises(NotVisible):
            await take_back(alice, own)
    with pytest.raises(NotVisible):
        await take_back(alice, CapabilityId(bytes(32)))
    with pytest.raises(ContentError, match="by its id, or give it whole"):
        await alice.caller.ask("authority", "take_back", TakeBack(), TakenBack)
    assert await listed(bob) == []
    assert await works(house, chain, bob.signer)


@pytest.mark.req("AUT-1")
async def test_only_what_holds_is_told_of(house: Installation, alice: Principal) -> None:
    chain = given(alice, exp_ns=house.clock.wall_ns() + SECOND)
    wider = (*chain[:-1], forged(chain[-1], alice.signer, rights=(Right.GRANT,)))
    with pytest.raises(CapabilityError) as caught:
        await tell(alice, wider)
    assert caught.value.step == "attenuation.rights"
    house.clock.now_ns += SECOND
    with pytest.raises(CapabilityError) as caught:
        await tell(alice, chain)
    assert caught.value.step == "time"
    assert await listed(alice) == []
