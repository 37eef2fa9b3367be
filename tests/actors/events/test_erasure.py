"""Erasing from the events room: sessions, sources and kinds, and no other namespace's."""

from __future__ import annotations

import pytest

from actors.authority.erasures import fingerprint
from actors.events.book import LEASES, RESPONSES, SESSIONS, TURNS, response_key, turn_key
from actors.events.context import _small
from actors.events.erasure import older, source_keys, strays, traces
from actors.events.registry import SOURCES
from actors.events.writer import APPENDS
from protocol.errors import NotVisible
from protocol.ids import BlockId
from protocol.messages import events as messages
from protocol.messages.erasure import Erase
from protocol.record import encode_record
from store.memory_tables import MemoryTables
from tests.events_rooms import House, merged, user


def order(*namespaces: str, objects: list[str] | None = None) -> Erase:
    return Erase(
        domains=[],
        namespaces=list(namespaces),
        spared=[],
        principals=[],
        names=[],
        objects=objects,
    )


@pytest.fixture
async def house() -> House:
    house = await House().start()
    house.principal = await house.rooms.enroll("alice")
    return house


async def filled(house: House, namespace: str) -> messages.SessionRow:
    """A source with an event, a removed source, a kind, and a session with a turn."""
    for name in ("builds", "old"):
        await house.source(name, namespace)
        await house.emit(name, merged("1"), namespace=namespace)
    gone = messages.RemoveSource(namespace=namespace, name="old")
    await house.ask("remove_source", gone, messages.Empty)
    kind = messages.RegisterKind(namespace=namespace, kind=f"{namespace}.Told", schema=b"{}")
    await house.ask("register_kind", kind, messages.KindRow)
    session = await house.open(namespace=namespace, place="here")
    await house.begin(session.id, namespace=namespace, input=[user("what happened?")])
    return session


@pytest.mark.req("AUT-8")
async def test_a_namespace_goes_whole_and_no_other(house: House) -> None:
    await filled(house, "alice/gone")
    kept = await filled(house, "alice/kept")
    assert isinstance(house.tables, MemoryTables)
    assert house.logs is not None
    assert _small.cache_info().currsize > 0
    counts = await house.room.erase(order("alice/gone"))
    # Nor is an entry remembered that was read for a turn.
    assert _small.cache_info().currsize == 0
    assert counts["sessions"] == 1
    assert counts["sources"] == 1
    assert counts["kinds"] == 1
    assert traces(house.tables, order("alice/gone"), fingerprint) == []
    assert b"alice/gone" not in b"".join(
        key + value
        for name in list(house.tables._rows)
        for key, value in house.tables.rows(name).items()
    )
    assert len(house.logs.ranges()) == 1
    assert len(traces(house.tables, order("alice/kept"), fingerprint)) >= 4
    # Where somebody goes on, by age.
    assert older(house.tables, order("alice"), kept.created_ns) == []
    found = [f"session {kept.id}, older than the erasure,"]
    assert older(house.tables, order("alice"), kept.created_ns + 1) == found
    assert older(house.tables, order("bob"), kept.created_ns + 1) == []
    ask = messages.AskSession(namespace="alice/kept", id=kept.id)
    assert len((await house.ask("turns", ask, messages.Turns)).turns) == 1
    # Again is harmless, and the names are free.
    assert set((await house.room.erase(order("alice/gone"))).values()) == {0}
    await filled(house, "alice/gone")


@pytest.mark.req("AUT-8")
async def test_an_object_takes_the_sessions_that_name_it(house: House) -> None:
    one, two = await house.open(), await house.open()
    said = user("a secret")
    await house.begin(one.id, input=[said])
    await house.begin(two.id, input=[user("something else")])
    id = str(BlockId.of(encode_record(said.block)))
    assert isinstance(house.tables, MemoryTables)
    for named in (id, str(said.block.source.object)):
        over = order("alice", objects=[fingerprint(named)])
        found = [f"session {one.id}, which names an object,"]
        assert traces(house.tables, over, fingerprint) == found
        assert traces(house.tables, order("bob", objects=over.objects), fingerprint) == []
    other = order("alice", objects=[fingerprint(str(BlockId.of(b"another")))])
    assert traces(house.tables, other, fingerprint) == []
    assert (await house.room.erase(order("bob", objects=[id])))["sessions"] == 0
    assert (await house.room.erase(order("alice", objects=[id])))["sessions"] == 1
    assert traces(house.tables, over, fingerprint) == []
    with pytest.raises(NotVisible):
        await house.turns(one.id)
    assert len((await house.turns(two.id)).turns) == 1
    assert (await house.room.erase(order("alice", objects=[str(said.block.source.object)])))[
        "sessions"
    ] == 0


@pytest.mark.req("AUT-8")
async def test_what_was_archived_goes_too(house: House) -> None:
    session = await house.open(place="here")
    house.passes(40 * 24 * 3600)
    await house.room._sessions.collect()
    assert isinstance(house.tables, MemoryTables)
    assert traces(house.tables, order("alice"), fingerprint) == ["a row of archive"]
    with pytest.raises(NotVisible):
        await house.turns(session.id)
    assert (await house.room.erase(order("alice")))["marks"] == 1
    assert traces(house.tables, order("alice"), fingerprint) == []


@pytest.mark.req("AUT-8")
async def test_what_belongs_to_nothing_is_found(house: House) -> None:
    await filled(house, "alice")
    tables, logs = house.tables, house.logs
    assert isinstance(tables, MemoryTables)
    assert logs is not None
    append = messages.AppendEvents(
        namespace="alice", source="builds", events=[merged("2")], key="once"
    )
    await house.ask("append", append, messages.Appended)
    assert strays(tables, list(logs.ranges())) == []
    (name,) = source_keys(tables)
    assert name.startswith("source-")
    tables.keyed(LEASES).put(turn_key("gone", 1), bytes(8))
    tables.keyed(RESPONSES).put(response_key("alice", "r"), b"gone" + bytes(8))
    assert strays(tables, list(logs.ranges())) == [
        f"1 rows of {LEASES} are of no session",
        f"1 rows of {RESPONSES} are of no session",
    ]
    # As an erasure leaves it that went no further.
    tables.keyed(SESSIONS).trim(0)
    tables.keyed(SOURCES).trim(0)
    found = strays(tables, list(logs.ranges()))
    assert f"1 rows of {TURNS} are of no session" in found
    assert f"1 rows of {APPENDS} are of no source" in found
    (source,) = logs.ranges()
    assert f"the log of {source} is of no source" in found
    assert source_keys(tables) == set()
