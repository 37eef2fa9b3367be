"""An erasure of ten thousand objects in whose middle every disk fails, in each room in turn: after
the restart it is finished, nothing of it is left, and what the neighbour has is what it was.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest

from actors.muninn.evidence import domain_stem
from protocol.messages import Empty
from protocol.messages.erasure import ErasureRow, Erasures
from store.blobs import BlobFiles
from store.pages.header import domain_digest
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.erasure_house import ALICES, BOBS, ErasureHouse, found, in_batches, opened, texts
from tests.lossy_blobs import LossyBlobs
from tests.lossy_disk import LossyDisk
from tests.stores import FAST

# Whose disk fails first, in the order in which they are asked; the large bodies are of the ropes.
# How many moments are tried in each. `make crash` sets the stride to 1: many.
PLACES = {
    "authority": 1,
    "gateway": 1,
    "events": 1,
    "worker": 1,
    "muninn": 1,
    "ropes": 2,
    "blobs": 2,
}
TIMES = 1 if int(os.environ.get("HUGINN_CRASH_STRIDE", "3")) > 1 else 20
_names = itertools.count()


class Power:
    """What all disks hang on."""

    def __init__(self) -> None:
        self.off = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.is_off = False

    def fail(self) -> None:
        self.is_off = True
        self.loop.call_soon_threadsafe(self.off.set)


class PlugDisk(LossyDisk):
    """One that is dead when any of them is."""

    def __init__(self, name: str, power: Power) -> None:
        self._power = power
        super().__init__(name)

    def step(self) -> bool:
        self.dead = self.dead or self._power.is_off
        failed = super().step()
        if self.dead and not self._power.is_off:
            self._power.fail()
        return failed


class Disks:
    """A disk for each place of `house`, on one `power`."""

    def __init__(self, house: ErasureHouse) -> None:
        self.power = Power()
        number = next(_names)
        self.of = {place: PlugDisk(f"plug-{number}-{place}", self.power) for place in PLACES}
        self._blobs: list[LossyBlobs] = []
        house.vfs = lambda room: self.of[room].name
        house.blobs = self._opened
        self._house = house

    def _opened(self, root: Path) -> BlobFiles:
        self._blobs.append(LossyBlobs(root, self.of["blobs"]))
        return self._blobs[-1]

    def operations(self) -> Counter[str]:
        return Counter({place: disk.operations for place, disk in self.of.items()})

    def power_off(self) -> None:
        """What was not synced is lost, and the house has sound disks again."""
        for disk in [*self.of.values(), *self._blobs]:
            disk.power_off()
        for disk in self.of.values():
            disk.unregister()
        self._house.vfs, self._house.blobs = lambda room: None, BlobFiles


async def filled(home: Path) -> ErasureHouse:
    """What is erased and what stays, at rest in `home`."""
    house = await opened(home)
    shared = texts("both of them", 2_000)
    large = [*texts(f"{ALICES} large", 3, size=400_000), *texts("both", 1, size=400_000)]
    in_batches(house.store, "alice/notes", [*texts(f"{ALICES} alone", 6_000), *shared, *large])
    in_batches(house.store, "bob", [*texts(f"{BOBS} alone", 2_000), *shared, large[-1]])
    assert house.store.stats().objects > 10_000
    await house.stop()
    return house


@contextmanager
def in_memory() -> Iterator[Path]:
    # The lossy disks keep their own account of what is durable, so the real one need not.
    with TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)


@pytest.mark.req("AUT-8")
async def test_ten_thousand_objects_whenever_the_power_fails() -> None:
    with in_memory() as folder:
        house = await filled(folder / "before")
        before, has = house.home, belongings(house.home)
        assert all(has[kind] for kind in KINDS)
        steps = await erased(house, folder / "whole", None)
        assert belongings(house.home) == has
        died: Counter[str] = Counter()
        for place, moment in moments():
            at = 1 + int(steps[place] * moment)
            house.home = before
            home = folder / f"{place}-{moment:.3f}"
            died[place] += (await erased(house, home, (place, at)))["died"]
            assert belongings(home) == has, (place, at)
        # A writer that was idle for long may have put its log away by itself, in other steps.
        assert all(died[place] for place in PLACES), died


def moments() -> Iterator[tuple[str, float]]:
    """Where the power fails: a place, and after which part of its operations."""
    for place, count in PLACES.items():
        tried = count * TIMES
        yield from ((place, (moment + 0.5) / tried) for moment in range(tried))


async def erased(house: ErasureHouse, home: Path, death: tuple[str, int] | None) -> Counter[str]:
    """Erase alice from a copy of the house in `home`, whose power fails at that operation in that
    place, and see that it is done in the end. The operations that each disk saw, and `died`."""
    disks = Disks(house)
    await house.at(home)
    for database in house.databases:
        database.checkpoint()
    start = disks.operations()
    if death is not None:
        place, at = death
        disks.of[place].fail_at = disks.of[place].operations + at
    asking = asyncio.ensure_future(house.erase("domain", "alice"))
    failing = asyncio.ensure_future(disks.power.off.wait())
    async with asyncio.timeout(120):
        await asyncio.wait({asking, failing}, return_when=asyncio.FIRST_COMPLETED)
    for task in (asking, failing):
        task.cancel()
    await asyncio.gather(asking, failing, return_exceptions=True)
    steps = disks.operations() - start
    # Nobody is told anything more, and nothing more is stored.
    house.post.down.update(house.post.rooms)
    await house.die()
    disks.power_off()
    house.post.down.clear()
    house.post.forget()
    await house.start()
    async with asyncio.timeout(120):
        while (row := await the_erasure(house)) is None or row.done_ns is None:
            await asyncio.sleep(0.01)
    asked = {room for room, _ in house.orders}
    await house.stop()
    if disks.power.is_off:
        steps["died"] = 1
        assert death is not None
        # It died in the room's own part, which is asked for again, or between the rooms' parts.
        room = {"blobs": "ropes"}.get(death[0], death[0])
        assert room == "authority" or room in asked, (death, asked)
    assert house.marked(ALICES) == []
    assert found(home, "alice") == []
    return steps


async def the_erasure(house: ErasureHouse) -> ErasureRow | None:
    """How far it is, asked for anew if it was never begun."""
    house.rooms.clock.now_ns += 1000
    rows = await house.operator.caller.ask(
        "authority", "erasures", Empty(), Erasures, administer=True
    )
    if not rows.erasures:
        await house.erase("domain", "alice")
        return None
    return rows.erasures[0]


# -- what the neighbour has ------------------------------------------------------------------

KINDS = ("objects", "pages", "gateway", "events", "worker", "muninn")


def belongings(home: Path) -> dict[str, Any]:
    """Everything of bob's in `home`, which is at rest: objects with their bytes, pages and their
    key, and every row that says who he is, in any table."""
    name = domain_digest("bob").hex()
    files = [*(home / "pages" / name).glob("*"), home / "keys" / f"pages-{name}.secret"]
    has: dict[str, Any] = {"pages": {path.name: path.read_bytes() for path in files}}
    store = SqliteObjectStore(Database(home / "rooms" / "ropes.sqlite"), BlobFiles(home / "blobs"))
    members = store.list_members("bob")
    has["objects"] = dict(zip(members, store.get_many(("bob",), members), strict=True))
    has["heads"] = store.list_heads("bob")
    store.close()
    marks = (b"bob", domain_digest("bob"), domain_stem("bob").encode())
    for room in ("gateway", "events", "worker", "muninn"):
        connection = apsw.Connection(str(home / "rooms" / f"{room}.sqlite"))
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").get
        rows = [(table, row) for table in tables for row in _rows(connection, table)]
        has[room] = sorted(filter(partial(_says, marks), rows), key=repr)
        connection.close()
    return has


def _rows(connection: apsw.Connection, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(f'SELECT * FROM "{table}"')]


def _says(marks: tuple[bytes, ...], row: tuple[str, tuple[Any, ...]]) -> bool:
    """Whether something in the row is one of `marks`."""
    texts = [each.encode() if isinstance(each, str) else each for each in row[1]]
    return any(mark in each for each in texts if isinstance(each, bytes) for mark in marks)
