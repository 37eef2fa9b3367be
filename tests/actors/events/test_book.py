"""The book: what it remembers is what is stored, whatever went wrong in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from actors.events.alignment import Anchor
from actors.events.book import Book, Session, session_row, turn_key
from actors.events.turns import Placed
from protocol.errors import FaultError, NotVisible, StoreFault
from protocol.ids import BlockId
from store.memory_tables import MemoryTables
from store.tables import Change, Delete
from tests.actors.events.test_turns import turn

M1, M2 = BlockId.of(b"m1"), BlockId.of(b"m2")


class Failing(MemoryTables):
    """Tables whose next changes fail: not made (`refuse`), or made and not heard of (`lose`)."""

    refuse = lose = False

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        if self.refuse:
            raise StoreFault("refused")
        done = super().apply_soon(changes)
        if self.lose:
            raise StoreFault("lost")
        return done


def session(**changes: Any) -> Session:
    fields: dict[str, Any] = {
        "v": 1,
        "id": "session-1",
        "namespace": "alice",
        "persona": "Timmy",
        "principal": b"p",
        "created_ns": 1,
        "used_ns": 1,
        "turns": 0,
        "start": [],
        "marks": [],
        "injected": 0,
        "gaps": 0,
        "dropped": 0,
        **changes,
    }
    return Session(**fields)


async def begun(tables: MemoryTables) -> Book:
    book = Book(tables)
    await book.add(session())
    async with book.held("alice", "session-1") as live:
        await book.write(live, [turn()], injected=5)
    return book


async def test_another_book_reads_the_same() -> None:
    tables = MemoryTables()
    book = await begun(tables)
    again = Book(tables)
    assert again.sessions() == book.sessions() == [session(turns=1, injected=5)]
    assert again.live("alice", "session-1").turns == [turn()]
    assert session_row(again.sessions()[0]).turns == 1


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize("way", ["refuse", "lose"])
async def test_after_a_failed_write_the_book_says_what_is_stored(way: str) -> None:
    tables = Failing()
    book = await begun(tables)
    async with book.held("alice", "session-1") as live:
        setattr(tables, way, True)
        with pytest.raises(StoreFault):
            await book.write(live, [turn(number=2, id="turn-2", parent=1)])
        setattr(tables, way, False)
        assert len(live.turns) == (1 if way == "refuse" else 2)
        assert book.sessions()[0] == live.session
    assert Book(tables).live("alice", "session-1").turns == live.turns


async def test_a_session_of_another_namespace_is_not_there() -> None:
    book = await begun(MemoryTables())
    for namespace, id in (("bob", "session-1"), ("alice", "session-2")):
        with pytest.raises(NotVisible):
            book.live(namespace, id)


async def test_a_missing_turn_is_a_fault_and_no_silence() -> None:
    tables = MemoryTables()
    await begun(tables)
    tables.apply([Delete("turns", turn_key("session-1", 1))])
    with pytest.raises(FaultError, match="lacks its turn 1"):
        Book(tables).live("alice", "session-1")


async def test_a_step_runs_to_its_end_though_nobody_waits() -> None:
    book = await begun(MemoryTables())
    gate, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    waits = asyncio.ensure_future(book.undivided(work()))
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    gate.set()
    await book.ended()
    assert done.is_set()


async def test_who_waits_for_a_session_that_goes_is_told_so() -> None:
    book = await begun(MemoryTables())

    async def wait() -> None:
        async with book.held("alice", "session-1"):
            raise AssertionError("it is gone")

    async with book.held("alice", "session-1") as live:
        waits = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        await book.remove(live)
    with pytest.raises(NotVisible):
        await waits


async def test_sessions_in_use_are_not_forgotten() -> None:
    tables = MemoryTables()
    await begun(tables)
    book = Book(tables, live_max=2)
    for number in (2, 3, 4):
        await book.add(session(id=f"session-{number}"))
    async with book.held("alice", "session-1") as live:
        second = book.live("alice", "session-2")
        book.live("alice", "session-3")
        assert book.live("alice", "session-1") is live
        assert book.live("alice", "session-2") is second
    book.live("alice", "session-3")
    book.live("alice", "session-4")
    assert book.live("alice", "session-4") is not live
    assert book.live("alice", "session-1") is not live


async def test_renewals_are_kept_beside_their_turn() -> None:
    tables = MemoryTables()
    book = await begun(tables)
    async with book.held("alice", "session-1") as live:
        await book.renew(live, 1, 90)
    again = Book(tables).live("alice", "session-1")
    assert again.is_live(again.turn(1), 89)
    assert not again.is_live(again.turn(1), 90)
    async with book.held("alice", "session-1") as live:
        await book.write(live, [turn(state="unfinished")])
    assert tables.keyed("leases").count() == 0


async def test_where_reminders_stand_follows_the_lineage() -> None:
    book = await begun(MemoryTables())

    def placed(of: int, position: int, message: BlockId) -> Placed:
        return Placed.at(of, Anchor(position, message, after=False))

    rows = [
        turn(placed=[placed(1, 0, M1)]),
        turn(number=2, parent=1, placed=[placed(2, 2, M2), placed(1, 1, M1)]),
        turn(number=3, parent=1, placed=[placed(3, 4, M2)]),
    ]
    async with book.held("alice", "session-1") as live:
        await book.write(live, rows)
    assert live.view(None) == {}
    assert {of: anchor.position for of, anchor in live.view(2).items()} == {1: 1, 2: 2}
    assert {of: anchor.position for of, anchor in live.view(3).items()} == {1: 0, 3: 4}
    assert [each.number for each in live.lineage(3)] == [1, 3]
    assert [each.number for each in live.children(1)] == [2, 3]
