"""Views: to who may not read a namespace, what others began there is what was never there.

It may answer there all the same: in sessions that it opened itself, and turns of its own it goes on
with and ends. `others` are all kinds of such holders; each is somebody else's to every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from protocol.blocks import Role
from protocol.errors import HuginnError, NotVisible
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.record import Record
from protocol.resource import Right
from protocol.signing import Signer
from tests.events_rooms import NAMESPACE, House, merged, reminders, texts, user
from tests.rooms import SECOND, Principal

DAY = 24 * 3600
ANSWER = messages.OutputBlock(text="Well.", role=Role.MODEL)
# One key that signs for many who show it their handles.
GATEWAY = Signer(b"\x41" * 32)


@pytest.fixture
async def blind(house: House) -> Principal:
    return await house.rooms.enroll("blind", namespace=NAMESPACE, rights=["generate", "write"])


def given(house: House, signer: Signer, of: Principal | None = None) -> Principal:
    """A handle given out below that of `of` (alice) for the key of `signer`: it may not read."""
    giver = of or house.principal
    chain = giver.caller.give_out(
        signer.public,
        exp_ns=house.rooms.clock.now_ns + DAY * SECOND,
        rights=[Right.GENERATE, Right.WRITE],
    )
    return Principal(msgspec.structs.replace(giver.row, chain=list(chain)), signer, giver.ports)


def others(house: House, blind: Principal) -> list[Principal]:
    shown = given(house, GATEWAY)
    return [
        blind,
        given(house, Signer(b"\x42" * 32)),
        shown,
        given(house, GATEWAY),
        given(house, GATEWAY, shown),
        given(house, GATEWAY, blind),
    ]


@contextmanager
def acting(house: House, who: Principal) -> Iterator[None]:
    """Ask the house as `who`."""
    before, house.principal = house.principal, who
    try:
        yield
    finally:
        house.principal = before


async def heard(house: House, who: Principal, op: str, ask: Record) -> str:
    """All that an answer tells."""
    reply = house.room.operations[op].reply
    try:
        return repr(await house.ask(op, ask, reply, as_=who))
    except HuginnError as error:
        return f"{type(error).__name__} {error.message} {error.details}"


def about(session: str, turn: str, response: str) -> dict[str, Record]:
    """Everything that can be said of a turn, a session and a response."""
    named = {"namespace": NAMESPACE, "session": session}
    began = {"response": "resp-other", "wait_ns_max": 0, "input": [user("b")]}
    return {
        "renew_turn": messages.RenewTurn(**named, turn=turn),
        "finish_turn": messages.FinishTurn(**named, turn=turn, answer=ANSWER),
        "abandon_turn": messages.AbandonTurn(**named, turn=turn),
        "forget_response": messages.AskResponse(namespace=NAMESPACE, response=response),
        "begin_turn": messages.BeginTurn(**named, **began),
    }


# -- what is another's ---------------------------------------------------------------------------


@pytest.mark.req("AUT-3", "AUT-7")
@pytest.mark.parametrize("state", ["open", "finished", "unfinished", "none"])
async def test_what_another_began_is_answered_as_what_nobody_did(
    house: House, blind: Principal, state: str
) -> None:
    everybody = others(house, blind)
    for owner in [house.principal, *everybody]:
        with acting(house, owner):
            session = (await house.open(place="here")).id
            begun = None
            if state != "none":
                begun = await house.begin(session, input=[user("a")], response="resp-a")
            if begun is not None and state == "finished":
                await house.finish(begun)
            if begun is not None and state == "unfinished":
                await house.abandon(begun)
        turn = "turn-none" if begun is None else begun.turn
        before = await house.turns(session)
        unknown = about("session-x", "turn-x", "resp-x")
        for who in everybody:
            if who is owner:
                continue
            for op, ask in about(session, turn, "resp-a").items():
                said = await heard(house, who, op, ask)
                assert said == await heard(house, who, op, unknown[op])
                assert said.startswith("NotVisible")
        assert await house.turns(session) == before


@pytest.mark.req("AUT-3", "AUT-7")
async def test_a_turn_is_not_its_sessions(house: House, blind: Principal) -> None:
    """What others did in a session of one's own, and one's own turns by another session's name."""
    with acting(house, blind):
        session = (await house.open()).id
        mine = await house.begin(session, input=[user("a")])
        await house.finish(mine)
    theirs = await house.begin(session, input=[user("b")])
    other = (await house.open()).id
    for names in ((session, theirs.turn, "resp-2"), (other, mine.turn, "resp-x")):
        for op, ask in about(*names).items():
            assert (await heard(house, blind, op, ask)).startswith("NotVisible")


# -- what is one's own ---------------------------------------------------------------------------


@pytest.mark.req("AUT-3")
async def test_ones_own_turn_is_gone_on_with_and_ended(house: House, blind: Principal) -> None:
    for who in others(house, blind):
        with acting(house, who):
            for way in ("finish", "abandon"):
                begun = await house.begin(
                    (await house.open()).id, input=[user(way)], response="resp-own"
                )
                # By another link of the same holder, to a room that knows it from its store.
                house.passes(45)
                await house.crash()
                await house.renew(begun)
                if way == "abandon":
                    await house.abandon(begun)
                    continue
                first = await house.finish(begun)
                assert (first.blocks, await house.finish(begun)) == ([], first)
                ask = messages.AskResponse(namespace=NAMESPACE, response="resp-own")
                await house.ask("forget_response", ask, Empty)
                with pytest.raises(NotVisible):
                    await house.ask("forget_response", ask, Empty)


@pytest.mark.req("AUT-3")
async def test_who_reads_goes_on_with_anybodys(house: House, blind: Principal) -> None:
    reader = await house.rooms.enroll("reader", namespace=NAMESPACE)
    for owner in (house.principal, blind):
        with acting(house, owner):
            session = (await house.open()).id
            begun = await house.begin(session, input=[user("a")])
        with acting(house, reader):
            await house.renew(begun)
            finished = await house.finish(begun)
            assert texts(finished.blocks) == ["a", "Well."]
            second = await house.begin(session, input=[user("b")])
            await house.abandon(second)
        listed = await house.turns(session)
        assert [turn.state for turn in listed.turns] == ["finished", "unfinished"]


# -- places --------------------------------------------------------------------------------------


@pytest.mark.req("AUT-3", "AUT-7")
@pytest.mark.parametrize("crashed", [False, True])
async def test_each_finds_its_own_session_at_a_place(
    house: House, blind: Principal, crashed: bool
) -> None:
    """And who reads finds the one that is for all of these."""
    reader = await house.rooms.enroll("reader", namespace=NAMESPACE)
    holders = [house.principal, *others(house, blind)]
    found: list[str] = []
    for who in holders:
        with acting(house, who):
            row = await house.open(place="here", persona=f"persona {len(found)}")
            assert (row.persona, row.turns) == (f"persona {len(found)}", 0)
            found.append(row.id)
    assert len(set(found)) == len(holders)
    if crashed:
        await house.crash()
    for who, id in zip([reader, *holders], [found[0], *found], strict=True):
        with acting(house, who):
            assert (await house.open(place="here")).id == id


@pytest.mark.req("AUT-3", "AUT-7", "EVT-3")
async def test_at_its_place_one_that_may_not_read_begins_again_and_is_told_nothing_twice(
    house: House,
) -> None:
    rights = ["generate", "observe", "write"]
    watcher = await house.rooms.enroll("watcher", namespace=NAMESPACE, rights=rights)
    told: list[str] = []
    sessions = set()
    for number in range(3):
        await house.emit("huskies", merged(f"s{number}"))
        with acting(house, watcher):
            session = (await house.open(place="here")).id
            begun = await house.begin(session, input=[user("a")])
            await house.finish(begun)
        told += reminders(begun.blocks)
        sessions.add(session)
        # Another went on there, and was told more: that is nothing to the watcher.
        await house.emit("huskies", merged(f"t{number}"))
        await house.finish(await house.begin(session, input=[user("b")]))
        if number == 1:
            # The session is collected, what it had seen is kept.
            house.passes(31 * DAY)
            await house.open()
            await house.room.settled()
            with pytest.raises(NotVisible):
                await house.turns(session)
    assert len(sessions) == 3
    assert [[f"s{n} merged" in text for text in told] for n in range(3)] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert [[f"t{n} merged" in text for text in told] for n in range(3)] == [
        [False, True, False],
        [False, False, True],
        [False, False, False],
    ]


@pytest.mark.req("AUT-3", "AUT-7", "EVT-9")
async def test_what_was_archived_at_a_place_is_its_holders(house: House, blind: Principal) -> None:
    await house.emit("huskies", merged("1"))
    for who in (house.principal, blind):
        with acting(house, who):
            await house.begin((await house.open(place="here")).id, input=[user("a")])
        house.passes(31 * DAY)
        await house.room._sessions.collect()
    with acting(house, blind):
        assert (await house.open(place="here")).marks == []
    assert (await house.open(place="here")).marks != []


@pytest.mark.req("AUT-3")
async def test_removing_an_earlier_session_of_a_place_leaves_the_later_one(
    house: House, blind: Principal
) -> None:
    with acting(house, blind):
        first = (await house.open(place="here")).id
        await house.begin(first, input=[user("a")])
        second = (await house.open(place="here")).id
    for id in (first, second):
        with acting(house, blind):
            assert (await house.open(place="here")).id == second
        await house.ask("remove_session", messages.AskSession(namespace=NAMESPACE, id=id), Empty)
    with acting(house, blind):
        assert (await house.open(place="here")).id not in (first, second)
