"""One stream for a caller, over many asks; and cursors as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.caller import Caller
from actors.gateway.event_feed import (
    EventFeed,
    Happening,
    label,
    read_cursor,
    sources_in,
    write_cursor,
)
from protocol import cbor
from protocol.errors import ContentError, NotVisible
from protocol.ids import SourceId
from protocol.messages import Empty
from protocol.messages.events import (
    AddSource,
    Appended,
    AppendEvents,
    NewEvent,
    RemoveSource,
    SourceRow,
)
from protocol.signing import Signer
from tests.events_rooms import events_room
from tests.rooms import Installation

SECOND = 10**9


def row(source: SourceId, head: int, name: str = "a", namespace: str = "alice") -> SourceRow:
    return SourceRow(
        namespace=namespace,
        name=name,
        id=source,
        public_key=bytes(32),
        first=1,
        head=head,
        state="local",
        equivocations=0,
        parked=0,
    )


SOURCES = [SourceId.of(bytes((number,))) for number in range(4)]


@given(marks=st.dictionaries(st.sampled_from(SOURCES), st.integers(0, 2**63 - 1)))
def test_a_cursor_is_its_marks(marks: dict[SourceId, int]) -> None:
    text = write_cursor(marks)
    assert all(c.isalnum() or c in ".~" for c in text), "a URL and a header carry it as it is"
    rows = [row(source, 2**63 - 1) for source in SOURCES]
    assert read_cursor(text, rows) == marks
    # Of a source that is no more nothing is left to read.
    assert read_cursor(text, rows[:1]) == {k: v for k, v in marks.items() if k == SOURCES[0]}


@pytest.mark.parametrize("text", ["x", "x.", "x.-1", "x.1~", "x.٣", "x." + "9" * 20, "~"])
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(ContentError, match="cursor"):
        read_cursor(text, [])


def test_a_cursor_of_another_log() -> None:
    text = write_cursor({SOURCES[0]: 5})
    with pytest.raises(ContentError, match="number 4"):
        read_cursor(text, [row(SOURCES[0], 4)])


def test_names_from_above() -> None:
    assert label(row(SOURCES[0], 0), "alice") == "a"
    assert label(row(SOURCES[0], 0, namespace="alice/x/y"), "alice") == "x/y/a"


class Home:
    """Alice's sources in an installation of her own."""

    def __init__(self, installation: Installation, caller: Caller) -> None:
        self.installation = installation
        self.caller = caller

    async def add(self, name: str) -> SourceRow:
        ask = AddSource(namespace="alice", name=name)
        return await self.caller.ask("events", "add_source", ask, SourceRow)

    async def emit(self, name: str, *subjects: str) -> None:
        events = [NewEvent(kind="Close", subject=each, body=cbor.encode({})) for each in subjects]
        ask = AppendEvents(namespace="alice", source=name, events=events)
        await self.caller.ask("events", "append", ask, Appended)

    async def remove(self, name: str) -> None:
        ask = RemoveSource(namespace="alice", name=name)
        await self.caller.ask("events", "remove_source", ask, Empty)


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    installation = Installation()
    signer = Signer(installation.entropy.draw(32))
    # Before the others start: the authority tells what is revoked to rooms that it knows.
    installation.signers["events"] = signer
    installation.room_to_key["events"] = signer.public
    await installation.start()
    room = events_room(installation.world("events"))
    await installation.add(room)
    alice = await installation.enroll("alice")
    yield Home(installation, alice.caller)
    await room.drain()


def subject(item: Happening) -> str:
    return "gap" if item.event is None else item.event.subject


async def test_nothing_is_missed_and_nothing_comes_twice_over_many_handles(home: Home) -> None:
    await home.add("a")
    await home.add("b")
    await home.emit("a", "1")
    rows = await sources_in(home.caller, "alice")
    feed = EventFeed(home.caller, "alice", {each.id: each.head for each in rows})
    found: list[str] = []
    async with aclosing(feed.follow()) as items:
        for number in range(2, 8):
            name = "ab"[number % 2]
            if number == 5:
                # A source that is new, and one that had nothing so far: both are read whole.
                await home.add("c")
                name = "c"
            await home.emit(name, str(number))
            found.append(subject(await anext(items)))
            # The handle under which it was asked has ended: the next ask has a new one.
            home.installation.clock.now_ns += 61 * SECOND
    assert found == [str(number) for number in range(2, 8)]
    heads = {each.id: each.head for each in await sources_in(home.caller, "alice")}
    assert feed.marks == heads


async def test_one_source_that_goes_ends_its_stream(home: Home) -> None:
    source = await home.add("a")
    await home.emit("a", "1", "2")
    feed = EventFeed(home.caller, "alice", {source.id: 0}, only="a")
    async with aclosing(feed.follow()) as items:
        assert subject(await anext(items)) == "1"
        await home.remove("a")
        gone = await anext(items)
        assert gone.gap is not None
        assert (gone.gap.first, gone.gap.cause) == (2, "retention")
        with pytest.raises(NotVisible):
            await anext(items)
    assert feed.marks == {source.id: 2}
