"""What a worker knows of what is public: asked, kept, and acted on before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.publications import PublicBlocks
from protocol.errors import ContentError, StoreFault, Unavailable
from protocol.ids import BlockId
from protocol.messages import Empty
from protocol.messages.ropes import Publication, Publications
from store.memory_tables import MemoryTables
from store.tables import KeyedTable
from tests.worker_rooms import Board, Talk, call_from, inline, opened, stated, text_ids

B = [BlockId.of(bytes((number,))) for number in range(4)]


class Desk:
    """A set of public blocks, what was asked of it, and what was withdrawn."""

    def __init__(self, table: KeyedTable | None = None) -> None:
        self.table = MemoryTables().keyed("public") if table is None else table
        self.public: list[BlockId] = []
        self.log: list[str] = []
        self.deletes = True
        self.before_answer: Callable[[], None] = lambda: None
        self.blocks = self.opened()

    def opened(self) -> PublicBlocks:
        """A worker's own, as after a restart."""
        return PublicBlocks(self.table, self.ask, self.withdraw, blocking=inline)

    async def ask(self) -> Publications:
        self.log.append("ask")
        rows = [
            Publication(block=block, role="user", type="other", content_bytes=1)
            for block in self.public
        ]
        await asyncio.sleep(0)
        self.before_answer()
        return Publications(blocks=rows)

    async def withdraw(self) -> None:
        self.log.append("withdraw")
        assert not set(self.known()) - set(self.public), "used while it is deleted"
        if not self.deletes:
            raise StoreFault("bad disk")

    def known(self) -> list[BlockId]:
        return [block for block in B if self.blocks.leading([block])]


async def test_nothing_is_public_before_the_first_answer() -> None:
    desk = Desk()
    desk.public = [B[0], B[2]]
    assert desk.known() == []
    await desk.blocks.known()
    await desk.blocks.known()
    assert desk.known() == [B[0], B[2]]
    assert desk.blocks.leading([B[0], B[2], B[1], B[0]]) == 2
    assert desk.blocks.leading([B[1], B[0]]) == desk.blocks.leading([]) == 0
    # Nobody had written down what lay there: so what lies there goes, once.
    assert desk.log == ["ask", "withdraw"]


@pytest.mark.req("AUT-5")
@given(sets=st.lists(st.sets(st.sampled_from(B)), min_size=1, max_size=8), restarts=st.booleans())
def test_pages_go_exactly_when_something_was_withdrawn(
    sets: list[set[BlockId]], restarts: bool
) -> None:
    async def follow() -> None:
        desk = Desk()
        await desk.blocks.refresh()
        for before, now in pairwise([set(), *sets]):
            desk.log.clear()
            desk.public = sorted(now)
            if restarts:
                desk.blocks = desk.opened()
            await desk.blocks.refresh()
            assert ("withdraw" in desk.log) == bool(before - now)
            assert set(desk.known()) == now

    asyncio.run(follow())


@pytest.mark.req("AUT-5", "AUT-8")
async def test_what_could_not_be_deleted_is_not_used_and_tried_again() -> None:
    desk = Desk()
    desk.public = B[:2]
    await desk.blocks.refresh()
    desk.deletes, desk.public = False, [B[1], B[2]]
    for _ in range(2):
        with pytest.raises(StoreFault):
            await desk.blocks.refresh()
        assert desk.known() == [B[1]]
    # Also after a restart: the old set is still what is written down.
    desk.blocks = desk.opened()
    with pytest.raises(StoreFault):
        await desk.blocks.refresh()
    desk.deletes = True
    await desk.blocks.refresh()
    assert desk.known() == [B[1], B[2]]


async def test_questions_are_asked_one_after_the_other() -> None:
    """So that the last answer is the newest, in whatever order notices come in."""
    desk = Desk()
    changes = iter([[B[0]], [B[0], B[1]], [B[1]]])
    running = 0

    def answered() -> None:
        nonlocal running
        assert running == 0
        desk.public = next(changes)

    desk.before_answer = answered
    await asyncio.gather(*(desk.blocks.refresh() for _ in range(3)))
    assert desk.log.count("ask") == 3
    assert desk.known() == [B[0], B[1]], "what the third was answered"


async def test_a_ropes_room_that_is_gone_makes_nothing_public() -> None:
    board = Board()
    board.fails = Unavailable("not now")
    talk = Talk().add("user", text_ids("x" * 40)).add("user", text_ids("?"))
    board.blocks.add(talk.segments[0].block)
    statement = stated(talk.segments[:1])
    async with opened(mailbox=board) as bench:
        await bench.answer(talk.segments, public=statement)
        assert (await bench.receipt()).public_tokens is None
        board.fails = None
        await bench.answer(talk.segments, response="r2", public=statement)
        assert (await bench.receipt("r2")).public_tokens == 43
        assert board.asked == 2


@pytest.mark.req("AUT-2", "AUT-5")
async def test_only_the_ropes_room_says_that_something_changed() -> None:
    board = Board()
    async with opened(mailbox=board) as bench:
        with pytest.raises(ContentError, match="only the ropes room"):
            await bench.room.on_publications(call_from("alice"), Empty())
        assert board.asked == 0


@pytest.mark.req("AUT-5")
async def test_nobody_computes_as_the_public_domain() -> None:
    async with opened() as bench:
        with pytest.raises(ContentError, match="nobody's own"):
            await bench.answer(Talk().add("user", text_ids("x")).segments, domain="public")


async def test_a_worker_that_stops_says_that_it_asks_when_it_starts() -> None:
    board = Board()
    async with opened(mailbox=board) as bench:
        await bench.room.drain()
        with pytest.raises(Unavailable, match="when it starts"):
            await bench.room._public.refresh()
