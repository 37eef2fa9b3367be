"""Erasure, end to end over real files: what goes is in no file, what others see stays.

Each proof has a control that must fail: an erasure that leaves one room out, or that leaves what
was deleted in free space, is found.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.cli.erased import check_erased
from protocol.envelope import Envelope
from protocol.errors import AuthorityError, InvocationError, NotVisible
from protocol.messages import Empty
from protocol.messages.erasure import AskErasure, ErasureRow, Erasures
from protocol.messages.ropes import GetObjects, Objects
from store.fsck import FsckReport
from tests.erasure_house import (
    MARK,
    Deaf,
    ErasureHouse,
    Unhearing,
    in_batches,
    key_of,
    texts,
)

ALICES = f"{MARK} alice"
BOBS = f"{MARK} bob"
KEEPERS = ("gateway", "events", "worker", "muninn", "ropes")


async def opened(home: Path, **options: type[Deaf]) -> ErasureHouse:
    house = ErasureHouse(home)
    for name, value in options.items():
        setattr(house, name, value)
    await house.start()
    await house.people()
    await house.live(house.alice)
    await house.live(house.bob)
    return house


def found(home: Path, what: str, *, repair: bool = False) -> list[str]:
    """What `fsck --erased` finds."""
    report = FsckReport()
    check_erased(home, what, report, repair=repair)
    return [f"{each.kind}: {each.where}: {each.what}" for each in report.problems]


@pytest.mark.req("AUT-8")
async def test_ten_thousand_objects_shared_and_not(tmp_path: Path) -> None:
    house = await opened(tmp_path)
    mine = texts(f"{ALICES} alone", 6_000)
    large = texts(f"{ALICES} large", 3, size=400_000)
    shared = texts("both of them", 2_000)
    theirs = texts(f"{BOBS} alone", 2_000)
    in_batches(house.store, "alice/notes", [*mine, *large, *shared])
    in_batches(house.store, "bob", [*shared, *theirs])
    assert house.store.stats().objects > 10_000
    before = " ".join(house.marked(ALICES))
    kept = ("rooms/gateway", "rooms/ropes", "rooms/events", "blobs/")
    assert all(where in before for where in kept)
    row = await house.erase("domain", "alice")
    assert row.done_ns is not None
    assert [done.room for done in row.rooms] == [
        *("gateway", "events", "assembler", "worker", "muninn", "ropes", "authority")
    ]
    went = {done.room: done.counts for done in row.rooms}
    assert went["ropes"]["objects"] >= 6_003
    assert went["gateway"] == {"keys": 1, "letters": 1}
    # At once, while everything runs: in no file, and in no file of the write-ahead log.
    assert house.marked(ALICES) == []
    ids = [id for id, _ in [*shared, *theirs]]
    assert house.store.get_many(("bob",), ids) == [body for _, body in [*shared, *theirs]]
    some = [str(id) for id, _ in shared[:10]]
    got = await house.bob.caller.ask("ropes", "get", GetObjects(ids=some), Objects)
    assert [each.body for each in got.objects] == [body for _, body in shared[:10]]
    with pytest.raises(AuthorityError):
        await house.alice.caller.ask("ropes", "get", GetObjects(ids=some), Objects)
    assert house.keys.find(key_of("alice")) is None
    assert house.keys.find(key_of("bob")) is not None
    await house.stop()
    assert house.marked(ALICES) == []
    assert len(house.marked(BOBS)) >= 2
    assert found(tmp_path, "alice") == []
    assert found(tmp_path, "all") == []


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("left_out", KEEPERS)
async def test_a_room_that_is_left_out_is_found(tmp_path: Path, left_out: str) -> None:
    house = await opened(tmp_path)
    real = house.post.rooms[left_out]
    house.post.rooms[left_out] = Unhearing(left_out, house.rooms.world(left_out))
    row = await house.erase("domain", "alice")
    assert row.done_ns is not None
    house.post.rooms[left_out] = real
    await house.stop()
    traces = found(tmp_path, "alice")
    where = {"worker": ("the worker room", "pages", "keys")}.get(
        left_out, (f"the {left_out} room",)
    )
    assert all(any(each in trace for trace in traces) for each in where), traces
    if left_out == "gateway":
        kept = ("the key of alice", "the Matrix message $to-alice")
        assert all(any(each in trace for trace in traces) for each in kept), traces


@pytest.mark.req("AUT-8")
async def test_free_space_that_is_left_is_found(tmp_path: Path) -> None:
    house = await opened(tmp_path, tables=Deaf)
    keys = [f"hg-{number}" for number in range(200)]
    for key in keys:
        house.keys.add(key, house.alice.row)
    house.front.database.checkpoint()
    row = await house.erase("principal", "alice")
    assert row.done_ns is not None
    await house.stop()
    traces = found(tmp_path, "alice")
    assert traces
    assert all(trace.startswith("dead space: ") for trace in traces)
    found(tmp_path, "alice", repair=True)
    assert found(tmp_path, "alice") == []


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("room", ["gateway", "worker", "ropes"])
async def test_a_crash_in_the_middle_is_finished_after_the_restart(
    tmp_path: Path, room: str
) -> None:
    house = await opened(tmp_path)
    reached = asyncio.Event()

    async def hang(envelope: Envelope) -> None:
        if envelope.op == "erase" and envelope.room == room:
            reached.set()
            await asyncio.Event().wait()

    house.post.meanwhile = hang
    asking = asyncio.create_task(house.erase("domain", "alice"))
    async with asyncio.timeout(60):
        await reached.wait()
    # The room has done it and nobody was told: everything ends here.
    house.post.meanwhile = None
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await house.stop()
    open_ = found(tmp_path, "alice")
    assert any("is not done" in trace for trace in open_)
    house.post.forget()
    await house.start()
    async with asyncio.timeout(120):
        while (row := await the_erasure(house)).done_ns is None:
            await asyncio.sleep(0.02)
    order = ("gateway", "events", "assembler", "worker", "muninn", "ropes")
    # Those that had done it, and were noted, are not asked again.
    assert {asked for asked, _ in house.orders} == set(order[order.index(room) :])
    assert [done.room for done in row.rooms][-1] == "authority"
    await house.stop()
    assert house.marked(ALICES) == []
    assert found(tmp_path, "alice") == []


async def the_erasure(house: ErasureHouse) -> ErasureRow:
    house.rooms.clock.now_ns += 1000
    rows = await house.operator.caller.ask(
        "authority", "erasures", Empty(), Erasures, administer=True
    )
    assert len(rows.erasures) == 1
    return rows.erasures[0]


@pytest.mark.req("AUT-8")
async def test_a_room_that_is_away_is_waited_for(tmp_path: Path) -> None:
    house = await opened(tmp_path)
    house.post.down.add("worker")
    row = await house.erase("domain", "alice")
    assert row.done_ns is None
    assert row.waits is not None
    assert row.waits.startswith("worker: ")
    assert len(row.rooms) == 5
    assert house.marked(ALICES) == []
    house.post.down.clear()
    async with asyncio.timeout(60):
        while (await the_erasure(house)).done_ns is None:
            await asyncio.sleep(0.02)
    await house.stop()
    assert found(tmp_path, "alice") == []


@pytest.mark.req("AUT-8")
async def test_a_namespace_goes_and_its_principal_stays(tmp_path: Path) -> None:
    house = await opened(tmp_path)
    in_batches(house.store, "alice/old", texts(f"{MARK} old", 500))
    in_batches(house.store, "alice", texts("staying", 10))
    row = await house.erase("namespace", "alice/old", by=house.alice)
    assert row.done_ns is not None
    assert house.marked(f"{MARK} old") == []
    # Her session and her letter lie above, and stay; what was computed for her goes.
    above = [f"rooms/{name}.sqlite" for name in ("events", "gateway", "ropes")]
    assert house.marked(ALICES) == above
    ids = [str(id) for id, _ in texts("staying", 10)]
    got = await house.alice.caller.ask("ropes", "get", GetObjects(ids=ids), Objects)
    assert len(got.objects) == 10
    await house.stop()
    assert found(tmp_path, row.id) == []


@pytest.mark.req("AUT-8")
async def test_an_object_goes_with_the_sessions_that_name_it(tmp_path: Path) -> None:
    house = await opened(tmp_path)
    objects = texts(f"{MARK} one", 2)
    in_batches(house.store, "alice", objects)
    in_batches(house.store, "bob", objects[:1])
    gone, kept = (str(id) for id, _ in objects)
    row = await house.erase("object", kept, by=house.alice, namespace="alice")
    # Neither the row nor the audit log tells its id to who reads them.
    assert kept not in row.name
    assert kept.encode() not in b"".join(
        each.body for each in house.rooms.tables.log("audit").entries()
    )
    assert house.marked(f"{MARK} one 1") == []
    row = await house.erase("object", gone, by=house.alice, namespace="alice")
    # Somebody else has it: it leaves alice, and stays on disk for bob.
    assert house.marked(f"{MARK} one 0") == ["rooms/ropes.sqlite"]
    with pytest.raises(NotVisible):
        await house.alice.caller.ask("ropes", "get", GetObjects(ids=[gone]), Objects)
    got = await house.bob.caller.ask("ropes", "get", GetObjects(ids=[gone]), Objects)
    assert got.objects[0].body == objects[0][1]
    await house.stop()
    assert found(tmp_path, row.id) == []


@pytest.mark.req("AUT-7", "AUT-8")
async def test_nobody_erases_what_is_not_theirs(tmp_path: Path) -> None:
    house = await opened(tmp_path)
    for target, name in (
        ("domain", "alice"),
        ("principal", "alice"),
        ("namespace", "alice"),
        ("domain", "nobody"),
        ("principal", "nobody"),
        ("namespace", "nobody"),
        ("namespace", "no path"),
    ):
        with pytest.raises(NotVisible) as caught:
            await house.erase(target, name, by=house.bob)
        assert caught.value.message == f"no such {target} in this view"
    less = await house.rooms.enroll("carol", rights=["read", "write"])
    with pytest.raises(InvocationError, match="needs the right 'erase'"):
        await house.erase("namespace", "carol", by=less)
    row = await house.erase("principal", "bob", by=house.bob)
    with pytest.raises(NotVisible):
        await house.alice.caller.ask("authority", "erasure", AskErasure(id=row.id), ErasureRow)
    assert house.marked(BOBS) == []
    assert house.marked(ALICES) != []
    await house.stop()
