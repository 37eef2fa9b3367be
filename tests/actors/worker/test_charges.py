"""The logical ledger: sums that only asking changes, and that outlive the process."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.charges import LogicalLedger
from protocol.errors import DiskFull, StoreFault
from store.memory_tables import MemoryTables
from tests.worker_rooms import inline

ALICE, BOB = b"a" * 32, b"b" * 32


class Broken:
    """A table of a disk that refuses."""

    def put(self, key: bytes, value: bytes) -> None:
        raise StoreFault("the disk is full")

    def delete(self, key: bytes) -> bool:
        raise StoreFault("the disk is full")

    def items(self) -> list[tuple[bytes, bytes]]:
        return []


class Unreadable(Broken):
    """... and does not read either."""

    def items(self) -> list[tuple[bytes, bytes]]:
        raise StoreFault("the disk is gone")


charges = st.lists(
    st.tuples(st.sampled_from([ALICE, BOB]), *[st.integers(0, 1000)] * 3), max_size=20
)


@pytest.mark.req("AUT-6")
@given(charges)
async def test_sums_are_those_of_what_was_charged(
    given_: list[tuple[bytes, int, int, int]],
) -> None:
    table = MemoryTables().keyed("charges")
    ledger = LogicalLedger(table, blocking=inline)
    for who, answers, prompt, told in given_:
        ledger.charge(who, answers=answers, prompt_tokens=prompt, answer_tokens=told)
    await ledger.flush()
    again = LogicalLedger(table, blocking=inline)
    assert again.all() == ledger.all()
    for who in (ALICE, BOB):
        row = again.of(who)
        wanted = [sum(each[place] for each in given_ if each[0] == who) for place in (1, 2, 3)]
        assert [row.answers, row.prompt_tokens, row.answer_tokens] == wanted


@pytest.mark.req("AUT-8")
async def test_what_is_forgotten_does_not_come_back() -> None:
    table = MemoryTables().keyed("charges")
    ledger = LogicalLedger(table, blocking=inline)
    ledger.charge(ALICE, answers=1)
    ledger.charge(BOB, answers=2)
    assert await ledger.forget([ALICE, b"c" * 32]) == 1
    await ledger.flush()
    for each in (ledger, LogicalLedger(table, blocking=inline)):
        assert [row.principal for row in each.all().rows] == [BOB]


async def test_a_full_disk_loses_a_charge_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    ledger = LogicalLedger(Broken(), blocking=inline)
    ledger.charge(ALICE, answers=1)
    await ledger.flush()
    assert ledger.of(ALICE).answers == 1
    assert "the disk is full" in caplog.text
    with pytest.raises(StoreFault):
        await ledger.forget([ALICE])


async def test_what_cannot_be_read_is_not_written_over(caplog: pytest.LogCaptureFixture) -> None:
    ledger = LogicalLedger(Unreadable(), blocking=inline)
    ledger.charge(ALICE, answers=1)
    await ledger.flush()
    assert ledger.of(ALICE).answers == 1
    assert "counts from 0" in caplog.text
    assert "are not written" not in caplog.text


class Filling(Broken):
    """A table that is full while `full`, over one that is not."""

    def __init__(self) -> None:
        self.inner = MemoryTables().keyed("charges")
        self.full = True

    def put(self, key: bytes, value: bytes) -> None:
        if self.full:
            raise DiskFull("the disk is full")
        self.inner.put(key, value)


async def test_what_found_no_room_is_written_with_the_next_charge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Filling()
    ledger = LogicalLedger(table, blocking=inline)
    for _ in range(3):
        ledger.charge(ALICE, answers=1)
        await ledger.flush()
    assert caplog.text.count("the disk is full") == 1
    table.full = False
    ledger.charge(BOB, answers=1)
    await ledger.flush()
    after = LogicalLedger(table.inner, blocking=inline)
    assert (after.of(ALICE).answers, after.of(BOB).answers) == (3, 1)
    table.full = True
    ledger.charge(ALICE, answers=1)
    await ledger.flush()
    assert caplog.text.count("the disk is full") == 2
    table.full = False
    await ledger.flush()
    assert LogicalLedger(table.inner, blocking=inline).of(ALICE).answers == 4
