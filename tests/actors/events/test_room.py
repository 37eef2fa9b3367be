"""The events room from outside: what a turn is told, through every message of sessions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.errors import AuthorityError, NotVisible
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.record import Record
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_tables import SqliteTables
from tests.events_rooms import NAMESPACE, House, merged, model, reminders, texts, user
from tests.session_play import Play, edited


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House().start()
    yield house
    await house.room.drain()


@pytest.mark.req("EVT-4", "EVT-11")
async def test_a_merge_is_in_the_next_prompt_and_only_there(house: House) -> None:
    await house.source("huskies")
    session = (await house.open()).id
    await house.emit("huskies", merged("1122"))
    first = await house.begin(session, input=[user("what's going on?")])
    assert len(reminders(first.blocks)) == 1
    assert "1122 merged" in reminders(first.blocks)[0]
    assert texts(first.blocks)[-1] == "what's going on?"
    finished = await house.finish(first, "1122 is merged.")
    assert texts(finished.blocks)[-1] == "1122 is merged."
    second = await house.begin(session, input=[user("and now?")])
    assert second.blocks[: len(finished.blocks)] == finished.blocks
    assert reminders(second.blocks) == reminders(first.blocks)
    assert second.injected == 0


@pytest.mark.req("EVT-13")
async def test_events_cause_no_turn_and_ask_nobody(house: House) -> None:
    await house.source("huskies")
    session = (await house.open()).id
    await house.talk(session, "hello")
    house.rooms.post.forget()
    for number in range(20):
        await house.emit("huskies", merged(str(number)))
    await house.room.settled()
    assert {envelope.room for envelope in house.rooms.post.sent} == {"events"}
    assert len((await house.turns(session)).turns) == 1


async def test_a_room_that_is_built_again_has_everything(house: House) -> None:
    await house.source("huskies")
    session = (await house.open(place="here")).id
    await house.emit("huskies", merged("1"))
    begun = await house.talk(session, "a")
    before = await house.turns(session)
    await house.crash()
    assert await house.turns(session) == before
    ask = messages.ReadEvents(namespace=NAMESPACE, source="huskies", after=0, limit=10)
    page = await house.ask("read", ask, messages.EventPage)
    assert (len(page.entries), page.head) == (1, 1)
    second = await house.begin(session, input=[user("b")])
    assert second.blocks[:-1] == [*begun.blocks, model("Well.")]


@pytest.mark.req("EVT-9")
async def test_the_end_of_a_removed_source_is_seen_once(house: House) -> None:
    await house.source("huskies")
    session = (await house.open()).id
    await house.emit("huskies", merged("1"), merged("2"))
    await house.talk(session, "a")
    await house.emit("huskies", merged("3"))
    gone = messages.RemoveSource(namespace=NAMESPACE, name="huskies")
    await house.ask("remove_source", gone, Empty)
    begun = await house.talk(session, "b")
    assert [(gap.first, gap.last) for gap in begun.gaps] == [(3, 3)]
    assert "EventStreamGap: 1 events not kept, 3 to 3" in reminders(begun.blocks)[-1]
    assert (await house.begin(session, input=[user("c")])).gaps == []


async def test_only_who_operates_hears_of_the_whole(house: House) -> None:
    with pytest.raises(AuthorityError):
        await house.ask("status", Empty(), messages.EventsStatus)
    await house.source("huskies")
    await house.open()
    operator = await house.rooms.enroll("operator", administers=True)
    status = await operator.caller.ask(
        "events", "status", Empty(), messages.EventsStatus, administer=True
    )
    assert (status.sources, status.sessions, status.subscribers) == (1, 1, 0)
    assert status.counters["produced"] == 0


@pytest.mark.parametrize(
    ("op", "record", "reply"),
    [
        ("open_session", {"persona": "x", "since": "now"}, messages.SessionRow),
        ("begin_turn", {"session": "s", "response": "r", "wait_ns_max": 0}, messages.BegunTurn),
        ("preview", {"session": "s"}, messages.Previewed),
        ("turns", {"id": "s"}, messages.Turns),
        ("remove_session", {"id": "s"}, Empty),
        ("renew_turn", {"session": "s", "turn": "t"}, messages.Renewed),
        ("abandon_turn", {"session": "s", "turn": "t"}, Empty),
        ("response", {"response": "r"}, messages.ResponseRow),
        ("forget_response", {"response": "r"}, Empty),
    ],
)
async def test_another_namespace_is_not_there(
    house: House, op: str, record: dict[str, object], reply: type[Record]
) -> None:
    kind = messages.OPERATIONS[op].ask
    if op == "begin_turn":
        record = {**record, "input": [user("a")]}
    with pytest.raises(NotVisible):
        await house.ask(op, kind(namespace="mallory", **record), reply)


@pytest.mark.req("EVT-5")
async def test_on_disk_as_in_memory(tmp_path: Path) -> None:
    """A play with deaths over one file, by a few seeds."""
    for seed in range(3):
        database = Database(tmp_path / f"{seed}.db")
        house = House(tables=SqliteTables(database), logs=SqliteEventLogs(database))
        play = Play(await house.start())
        draw = random.Random(seed)
        await play.add_source("huskies")
        await play.open(None)
        talk = play.talks[0]
        for _ in range(12):
            await play.emit("huskies", draw.randint(1, 2))
            told = await play.begin(talk, "ok")
            if told is not None and draw.random() < 0.7:
                await play.finish(talk, told, "Well.")
            elif draw.random() < 0.5:
                play.expire()
            if draw.random() < 0.4:
                await play.crash()
            await play.resend(talk, edited(talk.client, draw.randrange(6), 1, "go on"))
            play.expire()
        await play.adopt()
        await house.room.drain()
