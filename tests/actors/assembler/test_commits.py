"""What the assembler sends to be stored: what is new, and all of it where the base is gone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from msgspec import structs

from protocol.errors import CorruptObject, DiskFull, StoreFault
from protocol.ids import ObjectId
from store.memory_objects import MemoryObjectStore
from store.objects import View
from tests.assembler_rooms import TALK, expected, ids, shown
from tests.block_samples import model, user
from tests.derivations import FailingTables
from tests.rooms import Installation, Principal, assemble, assembled, new_blocks


async def test_one_more_turn_sends_one_block(house: Installation, alice: Principal) -> None:
    await assembled(alice, assemble(TALK))
    house.post.forget()
    longer = [*TALK, model("4")]
    assert await assembled(alice, assemble(longer)) == expected(longer)
    (commit,) = house.post.commits
    assert commit.keep == len(TALK)
    assert [new.content for new in commit.blocks] == [b"4"]
    assert len(commit.entries) == 1


async def test_an_edit_in_the_middle_sends_what_changed(
    house: Installation, alice: Principal
) -> None:
    await assembled(alice, assemble(TALK))
    house.post.forget()
    edited = [*TALK[:2], model("Good day."), *TALK[3:]]
    assert await assembled(alice, assemble(edited)) == expected(edited)
    (commit,) = house.post.commits
    assert commit.keep == 2
    # The blocks behind it are stored already: they go by their ids.
    assert [new.content for new in commit.blocks] == [b"Good day."]
    assert [entry.block for entry in commit.entries] == ids(edited)[2:]


async def test_a_block_that_stands_twice_is_sent_once(
    house: Installation, alice: Principal
) -> None:
    house.post.forget()
    twice = [user("a"), model("b"), user("a"), model("b")]
    assert await assembled(alice, assemble(twice)) == expected(twice)
    (commit,) = house.post.commits
    assert len(commit.blocks) == 2
    assert len(commit.entries) == 4


async def test_another_namespace_shares_no_memory(house: Installation) -> None:
    team = await house.enroll("team")
    await assembled(team, assemble(TALK, namespace="team/a"))
    house.post.forget()
    await assembled(team, assemble(TALK, namespace="team/b"))
    (commit,) = house.post.commits
    assert (commit.base, commit.keep, len(commit.blocks)) == (None, 0, len(TALK))


class Rotting(MemoryObjectStore):
    """Gives damaged bytes for every rope node while `rotten`."""

    rotten = False

    def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
        bodies = super().get_many(view, ids)
        if self.rotten and any(type(id).PREFIX == "rope" for id in ids):
            self.rotten = False
            ids[0].check(bodies[0] + b"rot")
        return bodies


@pytest.mark.parametrize("how", ["lost", "damaged"])
async def test_a_base_that_is_gone_or_damaged_is_sent_anew(how: str) -> None:
    store = Rotting()
    house = await Installation(store=store).start()
    alice = await house.enroll("alice")
    await assembled(alice, assemble(TALK))
    if how == "lost":
        store.drop_namespace("alice")
        store.sweep()
    store.rotten = how == "damaged"
    house.post.forget()
    longer = [*TALK, model("4")]
    assert await assembled(alice, assemble(longer)) == expected(longer)
    first, second = house.post.commits
    assert first.keep == len(TALK)
    assert (second.base, second.keep, len(second.blocks)) == (None, 0, len(longer))
    assert (await shown(alice, expected(longer).context)).blocks == new_blocks(longer)
    # And what was learned holds: the next turn is small again.
    house.post.forget()
    await assembled(alice, assemble([*longer, user("5")]))
    assert [(each.keep, len(each.blocks)) for each in house.post.commits] == [(len(longer), 1)]


async def test_damage_that_stays_is_told(house: Installation) -> None:
    class Ruin(MemoryObjectStore):
        def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
            for id in ids:
                id.check(b"ruin")
            return []

    ruined = await Installation(store=Ruin()).start()
    alice = await ruined.enroll("alice")
    answer = await assembled(alice, assemble(TALK))
    with pytest.raises(CorruptObject):
        await shown(alice, answer.context)


class Refusing(MemoryObjectStore):
    """Refuses what is put with `refusal`, while there is one."""

    refusal: StoreFault | None = None

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        if self.refusal is None:
            return super().put_many_soon(namespace, objects)
        refused: Future[None] = Future()
        refused.set_exception(self.refusal)
        return refused


async def test_on_a_full_disk_one_who_may_go_on_gets_the_same_and_is_told() -> None:
    store = Refusing()
    house = await Installation(store=store).start()
    alice = await house.enroll("alice")
    await assembled(alice, assemble(TALK[:2]))
    store.refusal = DiskFull("the disk is full")
    made = await assembled(alice, assemble(TALK, else_unstored=True))
    assert made == structs.replace(expected(TALK), unstored=True)
    with pytest.raises(DiskFull):
        await assembled(alice, assemble(TALK))
    store.refusal = None
    # None of it was taken for stored.
    house.post.forget()
    assert await assembled(alice, assemble(TALK, else_unstored=True)) == expected(TALK)
    (commit,) = house.post.commits
    assert len(commit.blocks) == len(TALK) - 2
    assert (await shown(alice, made.context)).sequence == made.sequence


async def test_a_policy_that_finds_no_room_is_registered_the_next_time() -> None:
    tables = FailingTables()
    house = Installation()
    house.tables = tables
    await house.start()
    alice = await house.enroll("alice")
    tables.full = True
    budget = 9_999
    made = await assembled(alice, assemble(TALK, tokens_max=budget, store=False))
    assert made == expected(TALK, tokens_max=budget)
    told = await assembled(alice, assemble(TALK, tokens_max=budget, else_unstored=True))
    assert told == structs.replace(made, unstored=True)
    registered = len(tables.rows("contracts"))
    tables.full = False
    stored = await assembled(alice, assemble(TALK, tokens_max=budget, else_unstored=True))
    assert stored == made
    assert len(tables.rows("contracts")) == registered + 1


async def test_control_another_fault_of_the_store_is_one() -> None:
    store = Refusing()
    house = await Installation(store=store).start()
    alice = await house.enroll("alice")
    store.refusal = StoreFault("the database refused")
    with pytest.raises(StoreFault, match="refused"):
        await assembled(alice, assemble(TALK, else_unstored=True))
