"""The ledger of looks: sums that outlive the room, and a disk in trouble that costs a charge."""

from __future__ import annotations

import pytest

from actors.muninn.ledger import Ledger
from store.memory_tables import MemoryTables
from store.tables import Put
from tests.derivations import FailingTables

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
