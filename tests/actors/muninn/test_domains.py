"""Two domains in one file of tables: what is remembered for one follows from its own past alone.

The oracle is the same memo over tables that no other domain shares.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.ids import InvocationId
from store.memory_tables import MemoryTables
from tests.derivations import advance, seen
from tests.memos import known, opened
from tests.muninn_rooms import Raven
from tests.mutations import Mutation, mutated
from tests.rooms import Principal

DOMAINS = ("alice", "bob")
NUMBERS = range(7)
# So small that random reports evict, fill and compact.
LIMITS = MemoLimits(entries_max=12, resident_max=3)
# Examined once: signatures are the slow part.
POOL = {
    (domain, number, page, run): seen(advance(number, page=page), domain=domain, run=run)
    for domain in DOMAINS
    for number in NUMBERS
    for page in (0, 1)
    for run in range(3)
}
NUMBER = st.sampled_from(NUMBERS)
REPORT = st.tuples(
    st.just("report"), NUMBER, st.sampled_from([0, 0, 0, 0, 1]), st.sampled_from(range(3))
)
OPERATION = st.one_of(
    REPORT,
    REPORT,
    REPORT,
    st.tuples(st.just("look"), NUMBER),
    st.tuples(st.just("lose"), NUMBER),
    st.tuples(st.sampled_from(["rebuild", "compact", "restart"])),
)
PLAY = st.lists(st.tuples(st.sampled_from(DOMAINS), OPERATION), max_size=40)


class Kept:
    """The memo of one domain over some tables."""

    def __init__(self, tables: MemoryTables, domain: str) -> None:
        self.tables = tables
        self.domain = domain
        self.memo = self._opened()

    def _opened(self) -> DomainMemo:
        return opened(self.tables, LIMITS, domain=self.domain)

    async def do(self, operation: tuple[object, ...]) -> object:
        """What it answers."""
        match operation:
            case ("report", int() as number, int() as page, int() as run):
                return await self.memo.admit([POOL[self.domain, number, page, run]])
            case ("look", int() as number):
                return known(self.memo, number)
            case ("lose", int() as number):
                gone = POOL[self.domain, number, 0, 0].key
                return await self.memo.admit([gone], known_only=True)
            case ("rebuild",):
                return await self.memo.rebuild()
            case ("compact",):
                return await self.memo.compact()
        self.memo = self._opened()
        return None

    def state(self) -> tuple[bool, dict[str, int], list[InvocationId]]:
        """All that a look or a report depends on."""
        resident = [key for key, _ in self.memo._index.resident()]
        return self.memo.sound, self.memo.figures(), resident


async def _play(operations: list[tuple[str, tuple[object, ...]]]) -> None:
    tables = MemoryTables()
    shared = {domain: Kept(tables, domain) for domain in DOMAINS}
    alone = {domain: Kept(MemoryTables(), domain) for domain in DOMAINS}
    for domain, operation in operations:
        assert await shared[domain].do(operation) == await alone[domain].do(operation)
        for each in DOMAINS:
            assert shared[each].state() == alone[each].state()
    for each in DOMAINS:
        for number in NUMBERS:
            assert known(shared[each].memo, number) == known(alone[each].memo, number)


@pytest.mark.req("AUT-5", "AUT-9", "DRV-6")
@given(PLAY)
def test_a_domain_is_remembered_as_if_there_were_no_other(
    operations: list[tuple[str, tuple[object, ...]]],
) -> None:
    asyncio.run(_play(operations))


@pytest.mark.parametrize(
    "piece",
    [
        ("actors.muninn.index", "Index.__init__", 'f"row-{stem}"', 'f"row-{generation}"'),
        ("actors.muninn.evidence", "domain_stem", 'domain.encode("utf-8")', 'b""'),
    ],
)
async def test_rows_or_logs_that_domains_shared_would_be_found(
    piece: tuple[str, str, str, str],
) -> None:
    """The control: one volume for both."""
    flood = [("bob", ("report", number, 0, 0)) for number in NUMBERS]
    with mutated(Mutation(*piece)), pytest.raises(AssertionError):
        await _play([("alice", ("report", 0, 0, 0)), *flood])


@pytest.mark.req("AUT-5", "AUT-9", "DRV-6")
async def test_no_volume_of_another_domain_makes_a_look_a_miss() -> None:
    raven = Raven(limits=MemoLimits(entries_max=40, resident_max=4))
    await raven.start()
    alice, bob = await raven.house.enroll("alice"), await raven.house.enroll("bob")
    mine = [advance(number) for number in range(4)]
    theirs = [advance(number) for number in range(60)]
    assert await raven.remember(*mine) == ["inserted"] * 4
    for start in (0, 20):
        assert set(await raven.remember(*theirs[start : start + 20], domain="bob")) == {"inserted"}
    assert set(await raven.remember(*theirs[40:], domain="bob")) == {"capacity"}

    async def kept(who: Principal, wanted: int) -> None:
        looked = [await raven.known(who, each) for each in theirs]
        assert sum(answer == [True] for answer in looked) == wanted

    for _ in range(2):
        assert await raven.known(alice, *mine) == [True] * 4
        await kept(alice, 4)
        await kept(bob, 4)
        # Nor does what the other looks at, or a restart.
        await raven.restart()
    # What is full is the other's alone.
    assert await raven.remember(*map(advance, range(4, 8))) == ["inserted"] * 4
    assert await raven.known(alice, *map(advance, range(4, 8))) == [True] * 4
    assert await raven.known(alice, *mine) == [False] * 4
