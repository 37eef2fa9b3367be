"""The ledger of looks: sums that outlive the room, and a disk in trouble that costs a charge."""

from __future__ import annotations

import pytest

from actors.muninn.ledger import Ledger
from store.memory_tables import MemoryTables
from store.tables import Put
from tests.derivations import FailingTables, advance
from tests.muninn_rooms import Raven
from tests.rooms import Principal

ALICE, BOB = b"a" * 32, b"b" * 32


@pytest.mark.req("DRV-6")
def test_sums_are_kept_by_principal() -> None:
    tables = MemoryTables()
    ledger = Ledger(tables)
    for principal, units in ((ALICE, 3), (BOB, 0), (ALICE, 4), (BOB, 1)):
        ledger.charge(principal, units)
    assert ledger.totals() == {ALICE: 7, BOB: 1}
    again = Ledger(tables)
    again.charge(BOB, 2)
    assert again.totals() == {ALICE: 7, BOB: 3}
    assert Ledger(tables).totals() == {ALICE: 7, BOB: 3}


def test_without_tables_it_is_kept_in_memory() -> None:
    ledger = Ledger(None)
    ledger.charge(ALICE, 2)
    assert ledger.totals() == {ALICE: 2}


@pytest.mark.req("DRV-5")
def test_what_cannot_be_written_is_written_with_the_next() -> None:
    tables = FailingTables()
    ledger = Ledger(tables)
    tables.full = True
    ledger.charge(ALICE, 2)
    tables.full = False
    ledger.charge(ALICE, 1)
    assert Ledger(tables).totals() == {ALICE: 3}


@pytest.mark.req("DRV-5")
def test_a_disk_that_cannot_be_read_forgets_no_sum() -> None:
    tables = FailingTables()
    Ledger(tables).charge(ALICE, 5)
    tables.gone = True
    ledger = Ledger(tables)
    ledger.charge(ALICE, 1)
    assert ledger.totals() == {ALICE: 1}
    tables.gone = False
    ledger.charge(BOB, 1)
    assert Ledger(tables).totals() == {ALICE: 6, BOB: 1} == ledger.totals()
    tables.gone = True
    ledger.charge(BOB, 1)
    assert ledger.totals() == {ALICE: 6, BOB: 2}


def test_a_sum_that_rotted_counts_from_nothing() -> None:
    tables = MemoryTables()
    tables.apply([Put("asked", ALICE, b"\xff"), Put("asked", BOB, b"\x60")])
    ledger = Ledger(tables)
    ledger.charge(ALICE, 1)
    assert ledger.totals() == {ALICE: 1}


@pytest.mark.req("AUT-6", "DRV-6")
async def test_whoever_finds_it_and_whoever_does_not_are_charged_alike(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    """Charged is what is asked for. Alice is told all of it, bob none, before and after a restart;
    only who operates can tell them apart, by what the room has done."""
    bob = await raven.house.enroll("bob")
    await raven.remember(*(advance(number) for number in range(3)))
    wanted = [advance(number) for number in range(3)]
    found = []
    for looks in (1, 2):
        for who, is_known in ((alice, True), (bob, False)):
            before = (await raven.status(operator)).counters
            assert await raven.known(who, *wanted) == [is_known] * 3
            after = (await raven.status(operator)).counters
            found.append({name: after[name] - before.get(name, 0) for name in after})
        charged = await raven.charged(operator)
        assert charged == {who.signer.public: 3 * looks for who in (alice, bob)}
        await raven.restart()
    for hit, miss in (found[:2], found[2:]):
        assert hit.get("look known") == miss.get("look unknown") == 3
        assert not hit.get("look unknown")
        assert not miss.get("look known")
