"""Sessions: opened where they are wanted, seen by who may, collected when idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors.events.book import ARCHIVE
from actors.events.sessions import SessionLimits
from protocol.errors import ContentError, NotVisible
from protocol.messages import Empty
from protocol.messages import events as messages
from tests.events_rooms import BUDGET, NAMESPACE, House, merged, reminders, texts, user
from tests.rooms import SECOND, Principal

DAY = 24 * 3600


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House().start()
    await house.source("huskies")
    await house.source("ketflix")
    yield house
    await house.room.drain()


async def told(house: House, session: str) -> str:
    return (await house.preview(session)).text


@pytest.mark.req("EVT-3", "EVT-7")
async def test_one_session_for_each_place(house: House) -> None:
    first = await house.open(place="matrix:!room:host")
    assert await house.open(place="matrix:!room:host") == first
    assert (await house.open(place="matrix:!other:host")).id != first.id
    assert (await house.open()).id != (await house.open()).id
    await house.crash()
    assert (await house.open(place="matrix:!room:host")).id == first.id


@pytest.mark.req("EVT-3")
async def test_from_now_or_from_the_beginning(house: House) -> None:
    await house.emit("huskies", merged("1"))
    aware = await house.open(since="beginning")
    unaware = await house.open(since="now")
    assert "1 merged" in await told(house, aware.id)
    assert await told(house, unaware.id) == ""
    await house.emit("huskies", merged("2"))
    assert "2 merged" in await told(house, unaware.id)
    assert "1 merged" not in await told(house, unaware.id)


@pytest.mark.req("EVT-3", "EVT-10")
async def test_personas_with_overlapping_scopes_move_their_own_marks(house: House) -> None:
    timmy = (await house.open(persona="Timmy")).id
    sally = (await house.open(persona="Sally", scope=["huskies"])).id
    await house.emit("huskies", merged("1"))
    await house.emit("ketflix", merged("2"))
    first = await house.talk(timmy, "what's new?")
    assert "1 merged" in reminders(first.blocks)[0]
    assert "2 merged" in reminders(first.blocks)[0]
    second = await house.talk(sally, "what's new?")
    assert "1 merged" in reminders(second.blocks)[0]
    assert "2 merged" not in reminders(second.blocks)[0]
    assert await told(house, timmy) == ""


@pytest.mark.req("EVT-4")
async def test_a_preview_is_what_the_turn_is_told_and_moves_nothing(house: House) -> None:
    session = (await house.open()).id
    await house.emit("huskies", merged("1"))
    preview = await house.preview(session)
    assert await house.preview(session) == preview
    begun = await house.begin(session, input=[user("a")])
    assert reminders(begun.blocks) == [preview.text]
    row = (await house.turns(session)).session
    assert row.marks == preview.marks
    assert (preview.events, preview.folded, preview.gaps) == (1, 0, [])


async def test_a_preview_of_an_earlier_turn(house: House) -> None:
    session = (await house.open()).id
    first = await house.talk(session, "a")
    await house.emit("huskies", merged("1"))
    await house.talk(session, "b")
    assert await told(house, session) == ""
    assert "1 merged" in (await house.preview(session, parent=first.turn)).text


@pytest.mark.req("EVT-14")
async def test_counters_of_a_session(house: House) -> None:
    session = (await house.open()).id
    for number in range(40):
        await house.emit("huskies", merged(str(number)))
    source = (await house.source("huskies")).id
    assert house.logs is not None
    house.logs.trim(source, 3)
    await house.begin(session, input=[user("a")], tokens_max=1000)
    row = (await house.turns(session)).session
    assert row.gaps == 3
    assert row.injected + row.dropped == 37
    assert row.injected > 0
    assert row.dropped > 0
    status = await house.rooms.enroll("operator", administers=True)
    counters = (
        await status.caller.ask("events", "status", Empty(), messages.EventsStatus, administer=True)
    ).counters
    assert counters["injected"] == row.injected
    assert counters["counted"] == row.dropped
    assert counters["gaps seen"] == 3


@pytest.mark.req("AUT-3")
async def test_a_session_outside_the_view_is_none(house: House) -> None:
    session = (await house.open()).id
    stranger = await house.rooms.enroll("mallory")
    for id in (session, "session-unknown"):
        ask = messages.AskSession(namespace=NAMESPACE, id=id)
        with pytest.raises(NotVisible) as caught:
            await house.ask("turns", ask, messages.Turns, as_=stranger)
        assert caught.value.message == "no such session or source in this view"
    own = messages.AskSession(namespace="mallory", id=session)
    with pytest.raises(NotVisible):
        await house.ask("turns", own, messages.Turns, as_=stranger)
    listed = messages.ListSessions(namespace=NAMESPACE)
    assert (await house.ask("sessions", listed, messages.Sessions, as_=stranger)).sessions == []
    assert len((await house.ask("sessions", listed, messages.Sessions)).sessions) == 1


@pytest.mark.req("EVT-10")
async def test_all_is_what_the_principal_may_observe(house: House) -> None:
    blind = await house.rooms.enroll("blind", namespace=NAMESPACE, rights=["generate", "write"])
    await house.emit("huskies", merged("1"))
    opened = messages.OpenSession(namespace=NAMESPACE, persona="Timmy", since="beginning")
    session = (await house.ask("open_session", opened, messages.SessionRow, as_=blind)).id
    ask = messages.BeginTurn(
        namespace=NAMESPACE, session=session, response="r", wait_ns_max=0, input=[user("a")]
    )
    begun = await house.ask("begin_turn", ask, messages.BegunTurn, as_=blind)
    assert begun.blocks == [user("a")]


async def test_a_removed_session_is_gone(house: House) -> None:
    session = (await house.open(place="here")).id
    await house.talk(session, "a")
    ask = messages.AskSession(namespace=NAMESPACE, id=session)
    await house.ask("remove_session", ask, Empty)
    for _ in range(2):
        with pytest.raises(NotVisible):
            await house.turns(session)
        await house.crash()
    assert (await house.open(place="here")).id != session


@pytest.mark.req("EVT-9")
async def test_an_idle_session_is_collected_and_goes_on_where_it_was(house: House) -> None:
    await house.emit("huskies", merged("1"))
    session = (await house.open(place="here")).id
    await house.talk(session, "a")
    house.passes(29 * DAY)
    busy = (await house.open()).id
    house.passes(2 * DAY)
    await house.emit("huskies", merged("2"))
    await house.open()
    await house.room.settled()
    with pytest.raises(NotVisible):
        await house.turns(session)
    assert (await house.turns(busy)).turns == []
    again = await house.open(place="here")
    text = await told(house, again.id)
    assert "2 merged" in text
    assert "1 merged" not in text


@pytest.mark.req("EVT-5", "EVT-9")
@pytest.mark.parametrize("idle_days", [29.9999, 31])
async def test_what_was_opened_when_a_collection_is_due_can_be_begun(
    house: House, idle_days: float
) -> None:
    """The collector runs beside the opening, and before the turn, as it does between a transport's
    two messages. One that was not idle for too long is the same one still; else it is the next."""
    await house.emit("huskies", merged("1"))
    before = (await house.open(place="here")).id
    await house.talk(before, "a")
    house.passes(idle_days * DAY)
    await house.emit("huskies", merged("2"))
    opened = (await house.open(place="here")).id
    await house.room.settled()
    # And one that is due between the two.
    house.passes(DAY / 24)
    await house.open(place="elsewhere")
    await house.room.settled()
    begun = await house.begin(opened, input=[user("b")])
    told = " ".join(reminders(begun.blocks))
    assert "2 merged" in told
    gone = idle_days > 30
    assert (opened != before) == gone
    # Nothing is told twice: what a session of before was told is in the turns that went with it.
    assert ("1 merged" in told) == (not gone)
    assert told.count("1 merged") <= 1
    assert texts(begun.blocks)[-1] == "b"
    assert house.room._counters["collected"] == gone


@pytest.mark.req("EVT-9")
async def test_many_who_open_an_idle_place_at_once_have_one_session(house: House) -> None:
    """And a collection that finds it gone goes on with the others."""
    before = (await house.open(place="here")).id
    others = [(await house.open()).id for _ in range(3)]
    house.passes(31 * DAY)
    opened = await asyncio.gather(*(house.open(place="here") for _ in range(4)))
    await house.room.settled()
    assert len({row.id for row in opened}) == 1
    for gone in (before, *others):
        with pytest.raises(NotVisible):
            await house.turns(gone)
    await house.crash()
    assert (await house.open(place="here")).id == opened[0].id


async def test_a_use_is_written_down_before_a_session_is_given_out(house: House) -> None:
    session = await house.open(place="here")
    house.passes(3599)
    assert (await house.open(place="here")).used_ns == session.used_ns, "no write each time"
    house.passes(1 * DAY)
    used_ns = (await house.open(place="here")).used_ns
    assert used_ns - session.used_ns == (DAY + 3599) * SECOND
    await house.crash()
    assert (await house.turns(session.id)).session.used_ns == used_ns


async def test_one_that_goes_while_it_is_opened_is_not_given_out(house: House) -> None:
    session = (await house.open(place="here")).id
    house.passes(DAY)
    book = house.room._book
    async with book.held(NAMESPACE, session) as live:
        opening = asyncio.ensure_future(house.open(place="here"))
        async with asyncio.timeout(60):
            while live.users < 2:
                await asyncio.sleep(0)
        await book.remove(live)
    opened = (await opening).id
    assert opened != session
    assert (await house.turns(opened)).turns == []


@pytest.mark.req("EVT-9", "AUT-3")
async def test_what_others_leave_behind_forgets_no_marks() -> None:
    house = await House(limits=SessionLimits(render_tokens=BUDGET, archived_max=2)).start()
    bob = await house.rooms.enroll("bob")
    await house.source("huskies")
    await house.emit("huskies", merged("1"))

    async def collected(as_: Principal, *places: str) -> None:
        for place in places:
            ask = messages.OpenSession(
                namespace=as_.row.namespace, persona="Timmy", since="now", place=place
            )
            await house.ask("open_session", ask, messages.SessionRow, as_=as_)
        house.passes(31 * DAY)
        await house.open()
        await house.room.settled()

    await collected(house.principal, "here")
    await collected(bob, *map(str, range(5)))
    assert "1 merged" not in await told(house, (await house.open(place="here")).id)
    assert len(house.tables.keyed(ARCHIVE).items(b"bob\0")) == 2
    # One's own do.
    assert house.room._book.archived(NAMESPACE, "here") is not None
    await collected(house.principal, "there", "elsewhere")
    assert house.room._book.archived(NAMESPACE, "here") is None
    assert len(house.tables.keyed(ARCHIVE).items(b"alice\0")) == 2
    await house.room.drain()


@pytest.mark.req("EVT-9")
async def test_what_no_session_has_seen_bounds_retention(house: House) -> None:
    sessions = house.room._sessions
    source = (await house.source("huskies")).id
    assert sessions.floor(source, NAMESPACE, "huskies") is None
    await house.emit("huskies", merged("1"))
    seen = (await house.open()).id
    await house.talk(seen, "a")
    assert sessions.floor(source, NAMESPACE, "huskies") == 1
    await house.open(scope=["ketflix"])
    assert sessions.floor(source, NAMESPACE, "huskies") == 1
    await house.open(scope=["huskies"])
    assert sessions.floor(source, NAMESPACE, "huskies") == 0
    assert sessions.floor(source, "elsewhere", "huskies") is None


@pytest.mark.req("EVT-9")
async def test_the_floor_is_the_lowest_mark_of_any_session(house: House) -> None:
    """Against the marks as they are listed, for sources that some have and some lack."""
    names = [f"source-{number}" for number in range(7)]
    ids = {name: (await house.source(name)).id for name in names}
    sessions = house.room._sessions
    for number, name in enumerate(names):
        await house.emit(name, *(merged(str(each)) for each in range(number + 1)))
        scope = names[: number + 1] if number % 2 else None
        await house.talk((await house.open(scope=scope)).id, "a")
    for name, source in ids.items():
        marks = [
            dict((mark.source, mark.seq) for mark in session.marks).get(source, 0)
            for session in house.room._book.sessions()
            if session.scope is None or name in session.scope
        ]
        assert sessions.floor(source, NAMESPACE, name) == min(marks)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"persona": ""}, ContentError),
        ({"persona": "a\nb"}, ContentError),
        ({"place": "x" * 256}, ContentError),
        ({"scope": ["nowhere"]}, NotVisible),
        ({"namespace": "mallory"}, NotVisible),
        ({"scope": ["huskies"] * 300}, ContentError),
    ],
)
async def test_what_may_not_be_opened(
    house: House, changes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await house.open(**changes)
