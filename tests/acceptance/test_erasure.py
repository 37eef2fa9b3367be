"""Erasure, end to end over real files: what goes is in no file, what others see stays.

Each proof has a control that must fail: an erasure that leaves one room out, or that leaves what
was deleted in free space, is found.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from protocol.envelope import Envelope
from protocol.errors import InvocationError, NotVisible
from protocol.ids import TextId
from protocol.messages import Empty
from protocol.messages.authority import Revoke
from protocol.messages.erasure import AskErasure, ErasureRow, Erasures
from protocol.messages.ropes import GetObjects, Objects
from tests.erasure_house import (
    ALICES,
    BOBS,
    MARK,
    Deaf,
    ErasureHouse,
    Unhearing,
    found,
    in_batches,
    opened,
    texts,
)
from tests.stores import FAST

# What `fsck --erased` says when one room did not do its part, by what was erased.
SAID: dict[str, dict[str, tuple[str, ...]]] = {
    "domain": {
        "gateway": ("the key of alice", "the Matrix message $to-alice"),
        "events": ("session ", "a row of sources", "kind alice.Told"),
        "worker": ("receipts of alice", "/pages/", "/keys/pages-"),
        "muninn": ("log evidence-", "the memo's header"),
        "ropes": ("namespace alice",),
    },
    # In whose domain there are others: what was computed is the domain's.
    "principal": {
        "gateway": ("the key of alice", "the Matrix message $to-alice"),
        "events": ("session ", "a row of sources"),
        "worker": ("the charges of ",),
        "muninn": ("the account of ",),
        "ropes": ("namespace alice",),
    },
    # Of one who goes on there, by age: what does not say how old it is may have come afterwards.
    "namespace": {
        "events": ("session ",),
        "worker": ("/pages/", "/keys/pages-"),
        "muninn": ("older than the erasure",),
    },
    # Of one who was revoked then: all of it.
    "namespace left": {
        "gateway": ("the Matrix message $to-alice",),
        "events": ("session ", "a row of sources"),
        "worker": ("receipts of alice", "/pages/", "/keys/pages-"),
        "muninn": ("log evidence-",),
        "ropes": ("namespace alice",),
    },
    "object": {
        "gateway": ("the Matrix message $to-alice",),
        "events": ("which names an object",),
        "worker": ("/pages/", "/keys/pages-"),
        "muninn": ("older than the erasure",),
        "ropes": ("an object of namespace alice",),
    },
}


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("target", SAID)
async def test_a_room_that_is_left_out_is_found(target: str) -> None:
    with TemporaryDirectory(dir=FAST) as folder:
        house = await opened(Path(folder) / "before")
        if target == "principal":
            await house.rooms.enroll("carol", domain="alice")
        await house.stop()
        before = house.home
        for left_out, said in {"nobody": (), **SAID[target]}.items():
            house.home = before
            await house.at(Path(folder) / left_out)
            id = await erased_without(house, target, left_out)
            await house.stop()
            traces = found(house.home, id)
            assert bool(traces) == bool(said), (left_out, traces)
            missing = [each for each in said if not any(each in trace for trace in traces)]
            assert missing == [], (left_out, traces)
            assert set(traces) <= set(found(house.home, "all"))


async def erased_without(house: ErasureHouse, target: str, left_out: str) -> str:
    """The id of an erasure from which the room `left_out` was spared."""
    # What is there is older than what is asked now.
    house.rooms.clock.now_ns += 10**9
    real = house.post.rooms.get(left_out)
    if real is not None:
        house.post.rooms[left_out] = Unhearing(left_out, house.rooms.world(left_out))
    name = str(TextId.of(ALICES.encode())) if target == "object" else "alice"
    asked = "namespace" if target.startswith("namespace") else target
    row = await house.erase(asked, name, namespace="alice")
    assert row.done_ns is not None
    if real is not None:
        house.post.rooms[left_out] = real
    if target == "namespace left":
        ask = Revoke(name="alice")
        await house.operator.caller.ask("authority", "revoke", ask, Empty, administer=True)
    return row.id


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
