"""The muninn room: who operates it, and that its troubles are nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from actors.muninn.index import MEMO, Index
from actors.muninn.limits import MemoLimits
from protocol.errors import CapabilityError, InvocationError, StoreFault
from protocol.messages import Empty
from protocol.messages import muninn as messages
from store.tables import Put
from tests.derivations import FailingTables, advance
from tests.muninn_rooms import Raven
from tests.rooms import Principal


async def test_operating_takes_the_handle_that_operates(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    for op, ask, reply in (
        ("sample", messages.DrawSample(count=1, seed=b""), messages.Samples),
        ("status", Empty(), messages.MemoStatus),
        ("rebuild", messages.Rebuild(disown=True), messages.Rebuilt),
    ):
        with pytest.raises(InvocationError, match="needs the right 'operate'"):
            await alice.caller.ask("muninn", op, ask, reply)
        # A room's own handle is for what rooms say, not for running the machine.
        with pytest.raises(CapabilityError, match="'operate' on 'service muninn'"):
            await raven.ask_as_room("worker", op, ask, reply)
        await operator.caller.ask("muninn", op, ask, reply, administer=True)


async def test_domains_are_rebuilt_sampled_and_disowned_apart(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    bob = await raven.house.enroll("bob")
    await raven.remember(advance(1), advance(2))
    await raven.remember(advance(1), domain="bob")
    assert {each.domain for each in await raven.sample(operator, 9)} == {"alice", "bob"}
    assert [each.domain for each in await raven.sample(operator, 9, domain="bob")] == ["bob"]
    assert await raven.sample(operator, 9, domain="nobody") == []
    assert await raven.rebuild(operator) == messages.Rebuilt(domains=2, invocations=3, failed=0)
    assert await raven.rebuild(operator, domain="bob", disown=True) == messages.Rebuilt(
        domains=1, invocations=0, failed=0
    )
    assert await raven.known(bob, advance(1)) == [False]
    assert await raven.known(alice, advance(1)) == [True]


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("how", ["disabled", "no entries"])
async def test_a_disabled_memo_knows_nothing_and_fails_nothing(how: str) -> None:
    raven = Raven(tables=None) if how == "disabled" else Raven(limits=MemoLimits(entries_max=0))
    await raven.start()
    alice = await raven.house.enroll("alice")
    operator = await raven.house.enroll("operator", administers=True)
    assert await raven.remember(advance(1)) == ["capacity"]
    assert await raven.known(alice, advance(1)) == [False]
    check = messages.Check(domain="alice", invocation=advance(1).invocation)
    assert [each.result for each in await raven.verified(check)] == ["unknown"]
    assert await raven.sample(operator, 5) == []
    status = await raven.status(operator)
    assert (status.enabled, status.domains, status.quarantined) == (False, [], [])
    assert (await raven.rebuild(operator)).domains == 0
    await raven.room.drain()


@pytest.mark.req("DRV-5")
async def test_a_full_or_failing_disk_is_nobodys_error() -> None:
    tables = FailingTables()
    raven = await Raven(tables=tables).start()
    alice = await raven.house.enroll("alice")
    operator = await raven.house.enroll("operator", administers=True)
    await raven.remember(advance(1))
    tables.full = True
    assert await raven.remember(advance(2)) == ["unknown"]
    assert await raven.known(alice, advance(1), advance(2)) in ([True, False], [False, False])
    tables.gone = True
    assert await raven.known(alice, advance(1)) == [False]
    assert await raven.remember(advance(3)) == ["unknown"]
    assert await raven.sample(operator, 3) == []
    assert (await raven.rebuild(operator)).failed == 1
    assert [each.sound for each in (await raven.status(operator)).domains] == [False]
    tables.full = tables.gone = False
    await raven.remember(advance(4))
    assert await raven.known(alice, advance(1), advance(4)) == [True, True]


@pytest.mark.req("DRV-5")
async def test_a_damaged_index_is_mended_behind_the_callers_back(
    raven: Raven, alice: Principal
) -> None:
    tables = raven.tables
    assert tables is not None
    await raven.remember(*(advance(n) for n in range(5)))
    rows = Index(tables, "alice", 0).rows
    for key, value in rows.items():
        tables.apply([Put(rows.name, key, value[:-1])])
    assert await raven.known(alice, advance(1)) == [False]
    while await raven.known(alice, advance(1)) == [False]:
        await asyncio.sleep(0)
    assert await raven.known(alice, *(advance(n) for n in range(5))) == [True] * 5


@pytest.mark.req("DRV-5", "ASM-8")
async def test_a_room_that_starts_mends_what_it_finds(raven: Raven, alice: Principal) -> None:
    tables = raven.tables
    assert tables is not None
    await raven.remember(advance(1))
    await raven.remember(advance(2), domain="bob")
    index = Index(tables, "alice", 0)
    tables.apply(index.clear())
    await raven.restart()
    await raven.room.mended()
    assert await raven.known(alice, advance(1)) == [True]


async def test_a_drained_room_has_closed_its_tables(raven: Raven, alice: Principal) -> None:
    await raven.remember(advance(1))
    await raven.room.drain()
    assert await raven.known(alice, advance(1)) == [False]
    tables = raven.tables
    assert tables is not None
    with pytest.raises(StoreFault):
        tables.keyed(MEMO).count()
