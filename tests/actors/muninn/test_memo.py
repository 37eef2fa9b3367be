"""The memo of one domain, against sets of what was said; and broken in every way that it can be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.muninn.evidence import EvidenceLog, Examined, last_generation
from actors.muninn.index import MEMO, Index, read_header
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.derivation import invocation_id
from protocol.ids import InvocationId
from store.memory_tables import MemoryTables
from store.tables import Change, Delete, Put, Tables
from tests.derivations import (
    ASSEMBLER,
    EXECUTORS,
    SEALER,
    STRANGER,
    WORKER,
    FailingTables,
    advance,
    seen,
    signed,
)
from tests.stores import KINDS
from tests.stores import tables as tables_of
from tests.worker_rooms import HandClock

KEYS = 5
LIMITS = MemoLimits(entries_max=1000, resident_max=100)


def opened(
    tables: Tables,
    limits: MemoLimits = LIMITS,
    *,
    domain: str = "alice",
    trusted: frozenset[bytes] = EXECUTORS,
) -> DomainMemo:
    return DomainMemo(tables, domain, trusted, limits, Counter(), signer=SEALER, clock=HandClock())


def known(memo: DomainMemo, number: int) -> str | None:
    """The page that the memo gives for an advance, or None."""
    found = memo.find(invocation_id(advance(number).invocation))
    if found is None or not memo.stands(found):
        return None
    return found.examined.evidence.outputs[-1].id


def page(number: int, page: int = 0) -> str:
    return advance(number, page=page).outputs[-1].id


def index_tables(tables: Tables) -> list[str]:
    return [
        table.name
        for generation in (0, 1)
        for index in [Index(tables, "alice", generation)]
        for table in (index.guards, index.rows, index.suspects)
    ]


# -- against an oracle -----------------------------------------------------------------------


@dataclass
class Oracle:
    """What was said of each invocation, as sets; nothing is ever forgotten."""

    outputs: dict[int, set[int]] = field(default_factory=dict)
    said: dict[int, set[tuple[int, int, bool]]] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)

    def report(self, number: int, page: int, run: int, by: bool) -> str:
        outputs = self.outputs.setdefault(number, set())
        new = not outputs
        outputs.add(page)
        self.said.setdefault(number, set()).add((page, run, by))
        if len(outputs) > 1:
            self.expired.discard(number)
            return "conflict"
        self.expired.discard(number)
        return "inserted" if new else "already-present"

    def lose(self, number: int) -> str:
        if number not in self.outputs:
            return "unknown"
        if len(self.outputs[number]) > 1:
            return "conflict"
        self.expired.add(number)
        return "expired"

    def served(self, number: int) -> str | None:
        outputs = self.outputs.get(number, set())
        if len(outputs) != 1 or number in self.expired:
            return None
        return page(number, min(outputs))


NUMBERS = st.integers(0, KEYS - 1)
REPORTS = st.tuples(
    st.just("report"), NUMBERS, st.sampled_from([0, 0, 0, 1]), st.integers(0, 2), st.booleans()
)
OPERATIONS = st.one_of(
    REPORTS,
    REPORTS,
    st.tuples(st.just("lose"), NUMBERS),
    st.tuples(st.just("rebuild")),
    st.tuples(st.just("restart")),
)
DAMAGE = st.tuples(st.sampled_from(["rot", "drop", "header", "no header"]), st.integers(0, 10**6))
# Examined once: signatures are the slow part.
POOL = {
    (number, page, run, by): seen(advance(number, page=page), ASSEMBLER if by else WORKER, run=run)
    for number in range(KEYS)
    for page in (0, 1)
    for run in range(3)
    for by in (False, True)
}


async def play(tables: Tables, operations: list[tuple[object, ...]], *, damaged: bool) -> None:
    memo, oracle = opened(tables), Oracle()
    for operation in operations:
        match operation:
            case ("report", int() as number, int() as page, int() as run, bool() as by):
                told = await memo.admit([POOL[number, page, run, by]])
                assert told == [oracle.report(number, page, run, by)]
            case ("lose", int() as number):
                told = await memo.admit([POOL[number, 0, 0, False].key], known_only=True)
                assert told == [oracle.lose(number)]
            case ("rebuild",):
                assert await memo.rebuild()
            case ("restart",):
                memo = opened(tables)
            case (str() as kind, int() as draw):
                damage(tables, kind, Random(draw))
        for number in range(KEYS):
            if damaged:
                # Never another answer than the right one; whether there is one is time.
                assert known(memo, number) in (None, oracle.served(number))
            else:
                assert known(memo, number) == oracle.served(number)
    await memo.rebuild()
    assert memo.sound
    for number in range(KEYS):
        assert known(memo, number) == oracle.served(number)
    check_guards(tables, oracle)
    check_log(tables, memo, oracle)


def damage(tables: Tables, kind: str, random: Random) -> None:
    """Something of the index rots or goes. The log is left alone."""
    if kind == "no header":
        tables.apply([Delete(MEMO, b"alice")])
        return
    names = [MEMO] if kind == "header" else index_tables(tables)
    rows = [(name, key, value) for name in names for key, value in tables.keyed(name).items()]
    if not rows:
        return
    name, key, value = random.choice(rows)
    if kind == "drop":
        tables.apply([Delete(name, key)])
    else:
        at = random.randrange(len(value))
        wounded = value[:at] + bytes((value[at] ^ (1 << random.randrange(8)),)) + value[at + 1 :]
        tables.apply([Put(name, key, wounded)])


def check_guards(tables: Tables, oracle: Oracle) -> None:
    header = read_header(tables, "alice")
    assert header is not None
    index = Index(tables, "alice", header.generation)
    for number, said in oracle.said.items():
        guard = index.guard(POOL[number, 0, 0, False].key)
        assert guard is not None
        assert set(guard.evidence) == {POOL[number, *each].id.digest for each in said}
    assert index.guards.count() == len(oracle.said)
    assert header.suspects == sum(len(outputs) > 1 for outputs in oracle.outputs.values())


def check_log(tables: Tables, memo: DomainMemo, oracle: Oracle) -> None:
    assert memo.figures()["damaged"] == 0
    log = EvidenceLog(tables, "alice", 0)
    heads = [head for head, _ in log.walk()]
    assert (heads or [log.start])[-1] == log.head()
    assert len(heads) >= sum(len(said) for said in oracle.said.values())


@pytest.mark.req("DRV-2", "DRV-4")
@given(st.lists(OPERATIONS, max_size=25))
def test_it_serves_what_was_said_and_not_contradicted(
    operations: list[tuple[object, ...]],
) -> None:
    asyncio.run(play(MemoryTables(), operations, damaged=False))


@pytest.mark.req("DRV-3", "DRV-5")
@given(st.lists(st.one_of(OPERATIONS, DAMAGE), max_size=25))
def test_a_damaged_index_never_serves_another_answer(
    operations: list[tuple[object, ...]],
) -> None:
    asyncio.run(play(MemoryTables(), operations, damaged=True))


@settings(max_examples=max(3, settings().max_examples // 50))
@given(st.lists(st.one_of(OPERATIONS, DAMAGE), min_size=10, max_size=20))
def test_on_disk_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    tables = tables_of("sqlite", tmp_path_factory.mktemp("memo"))
    try:
        asyncio.run(play(tables, operations, damaged=True))
    finally:
        tables.close()


# -- conflicts and checks --------------------------------------------------------------------


@pytest.mark.req("DRV-4")
async def test_a_conflict_is_noticed_after_eviction() -> None:
    tables = MemoryTables()
    memo = opened(tables, MemoLimits(entries_max=1000, resident_max=2))
    await memo.admit([seen(advance(number)) for number in range(4)])
    assert [known(memo, number) for number in range(4)] == [None, None, page(2), page(3)]
    assert await memo.admit([seen(advance(0, page=1))]) == ["conflict"]
    (key, suspicion), *more = memo.suspicions(9)
    assert not more
    assert key == seen(advance(0)).key
    assert suspicion.evidence == [signed(advance(0)), signed(advance(0, page=1))]
    # Nothing that is said later brings either back.
    assert await memo.admit([seen(advance(0)), seen(advance(0), run=9)]) == ["conflict"] * 2
    assert known(memo, 0) is None


@pytest.mark.req("DRV-4")
async def test_a_conflict_within_one_report() -> None:
    memo = opened(MemoryTables())
    told = await memo.admit([seen(advance(0)), seen(advance(0, page=1)), seen(advance(0), run=1)])
    assert told == ["inserted", "conflict", "conflict"]
    assert known(memo, 0) is None
    assert memo.figures()["quarantined"] == 1


@pytest.mark.req("DRV-4")
async def test_a_check_takes_nothing_in_about_what_is_not_known() -> None:
    tables = MemoryTables()
    memo = opened(tables)
    stray = seen(advance(0), verifier=seen(advance(0), run=8).id)
    assert await memo.admit([stray, stray.key], known_only=True) == ["unknown", "unknown"]
    assert EvidenceLog(tables, "alice", 0).head().seq == 0
    await memo.admit([seen(advance(0))])
    equal = seen(advance(0), run=1, verifier=seen(advance(0)).id)
    assert await memo.admit([equal], known_only=True) == ["equal"]
    assert await memo.admit([equal], known_only=True) == ["already-present"]


@pytest.mark.req("DRV-4")
async def test_a_conflict_is_not_served_even_if_it_cannot_be_written() -> None:
    tables = FailingTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0))])
    tables.full = True
    assert await memo.admit([seen(advance(0, page=1))]) == ["unknown"]
    tables.full = False
    assert await memo.admit([seen(advance(0, page=1))]) == ["conflict"]
    assert known(memo, 0) is None


# -- capacity --------------------------------------------------------------------------------


@pytest.mark.req("DRV-5")
async def test_a_full_log_takes_only_what_ends_service() -> None:
    tables = MemoryTables()
    memo = opened(tables, MemoLimits(entries_max=3, resident_max=9))
    await memo.admit([seen(advance(0)), seen(advance(1)), seen(advance(2))])
    assert await memo.admit([seen(advance(3)), seen(advance(0), run=1)]) == [
        "capacity",
        "already-present",
    ]
    assert known(memo, 3) is None
    assert [known(memo, n) for n in range(3)] == [page(n) for n in range(3)]
    assert EvidenceLog(tables, "alice", 0).head().seq == 3
    assert await memo.admit([seen(advance(1, page=1)), seen(advance(2)).key]) == [
        "conflict",
        "expired",
    ]
    assert [known(memo, n) for n in range(3)] == [page(0), None, None]
    assert await memo.rebuild(disown=True)
    assert await memo.admit([seen(advance(3))]) == ["inserted"]


async def test_the_least_recently_used_goes_first() -> None:
    memo = opened(MemoryTables(), MemoLimits(entries_max=1000, resident_max=3))
    await memo.admit([seen(advance(number)) for number in range(3)])
    assert known(memo, 0) == page(0)
    await memo.admit([seen(advance(3))])
    assert [known(memo, n) for n in range(4)] == [page(0), None, page(2), page(3)]
    # What is said again is at hand again.
    await memo.admit([seen(advance(1))])
    assert known(memo, 1) == page(1)
    assert memo.figures() == {
        "invocations": 4,
        "resident": 3,
        "evidence": 4,
        "quarantined": 0,
        "damaged": 0,
    }


# -- damage ----------------------------------------------------------------------------------


async def filled(tables: Tables, count: int = 6) -> DomainMemo:
    memo = opened(tables)
    await memo.admit([seen(advance(number)) for number in range(count)])
    await memo.admit([seen(advance(0, page=1))])
    return memo


@pytest.mark.req("DRV-5", "ASM-8")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_deleted_index_comes_back_from_the_log(kind: str, tmp_path: Path) -> None:
    tables = tables_of(kind, tmp_path)
    before = [known(await filled(tables), number) for number in range(7)]
    for name in [MEMO, *index_tables(tables)]:
        tables.keyed(name).trim(0)
    memo = opened(tables)
    assert not memo.sound
    assert [known(memo, number) for number in range(7)] == [None] * 7
    await memo.mend()
    assert [known(memo, number) for number in range(7)] == before
    assert before[0] is None
    assert before[1:] == [*(page(n) for n in range(1, 6)), None]
    tables.close()


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("wound", ["changed", "cut", "emptied"])
async def test_a_damaged_log_is_put_aside_whole(wound: str) -> None:
    tables = MemoryTables()
    memo = await filled(tables)
    entries = tables._entries[EvidenceLog(tables, "alice", 0).name]
    if wound == "changed":
        entries[2] = entries[2]._replace(body=entries[3].body)
    else:
        # Without its last entry, the conflict, the log would prove the wrong thing.
        del entries[-1 if wound == "cut" else 0 :]
    kept_aside = list(entries)
    if wound != "changed":
        memo = opened(tables)
        assert not memo.sound
    assert await memo.rebuild()
    assert [known(memo, number) for number in range(6)] == [None] * 6
    assert memo.figures()["damaged"] == 1
    assert last_generation(tables, "alice") == 1
    assert entries == kept_aside
    # It goes on with a log of its own, and does not go back.
    assert await memo.admit([seen(advance(1))]) == ["inserted"]
    assert known(opened(tables), 1) == page(1)
    tables.keyed(MEMO).trim(0)
    memo = opened(tables)
    await memo.mend()
    assert [known(memo, n) for n in range(3)] == [None, page(1), None]


async def test_what_is_disowned_stays_so() -> None:
    tables = MemoryTables()
    memo = await filled(tables)
    assert await memo.rebuild(disown=True)
    assert [known(memo, number) for number in range(6)] == [None] * 6
    assert memo.figures() == {
        "invocations": 0,
        "resident": 0,
        "evidence": 1,
        "quarantined": 0,
        "damaged": 0,
    }
    assert len(list(EvidenceLog(tables, "alice", 0).walk())) == 7
    tables.keyed(MEMO).trim(0)
    memo = opened(tables)
    await memo.mend()
    assert [known(memo, number) for number in range(6)] == [None] * 6


@pytest.mark.req("DRV-5")
async def test_a_disk_that_fails_and_recovers() -> None:
    tables = FailingTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0))])
    tables.gone = True
    assert known(memo, 0) is None
    assert memo.draw(5, b"") == []
    assert memo.suspicions(5) == []
    assert await memo.admit([seen(advance(1))]) == ["unknown"]
    assert not await memo.rebuild()
    assert memo.figures()["resident"] == 0
    assert opened(tables).figures() == dict.fromkeys(memo.figures(), 0)
    tables.gone = False
    await memo.mend()
    assert known(memo, 0) == page(0)
    assert await memo.admit([seen(advance(1))]) == ["inserted"]


class SlowTables(MemoryTables):
    """Makes changes when it is told to. `begun`: what waits cannot be called off any more."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Sequence[Change], Future[list[int]]]] = []
        self.slow = False
        self.begun = False

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        if not self.slow:
            return super().apply_soon(changes)
        future: Future[list[int]] = Future()
        if self.begun:
            future.set_running_or_notify_cancel()
        self.waiting.append((changes, future))
        return future

    def make(self) -> None:
        self.slow = False
        for changes, future in self.waiting:
            if self.begun or future.set_running_or_notify_cancel():
                future.set_result(super().apply_soon(changes).result())


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("begun", [True, False])
async def test_a_report_that_was_cancelled(begun: bool) -> None:
    tables = SlowTables()
    memo = opened(tables)
    tables.slow, tables.begun = True, begun
    loop = asyncio.get_running_loop()
    task = loop.create_task(memo.admit([seen(advance(0))]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not memo.sound
    assert known(memo, 0) is None
    # The next report waits for what had begun: it goes by what is stored then.
    task = loop.create_task(memo.admit([seen(advance(0), run=1), seen(advance(1))]))
    await asyncio.sleep(0)
    tables.make()
    assert await task == ["already-present" if begun else "inserted", "inserted"]
    assert [known(memo, n) for n in range(2)] == [page(0), page(1)]
    assert (memo.figures()["evidence"], memo.figures()["damaged"]) == (3 if begun else 2, 0)


@pytest.mark.req("DRV-5")
async def test_a_log_that_another_wrote_to_is_not_believed() -> None:
    """A store has one owner. If ever it had two, their log proves nothing, and says so."""
    tables = MemoryTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0))])
    await opened(tables).admit([seen(advance(0), run=1)])
    assert await memo.admit([seen(advance(0), run=2)]) == ["inserted"]
    assert known(memo, 0) == page(0)
    assert memo.figures()["damaged"] == 1


async def test_looking_waits_for_no_rebuild() -> None:
    tables = MemoryTables()
    memo = opened(tables)
    await memo.admit([seen(advance(number)) for number in range(300)])
    task = asyncio.get_running_loop().create_task(memo.rebuild())
    looks = 0
    while not task.done():
        assert known(memo, 250) == page(250)
        looks += 1
        await asyncio.sleep(0)
    assert looks > 2
    assert known(memo, 250) == page(250)


# -- trust and domains -----------------------------------------------------------------------


@pytest.mark.req("DRV-3")
async def test_evidence_of_a_key_that_counts_no_more_is_not_served() -> None:
    tables = MemoryTables()
    memo = opened(tables)
    await memo.admit([seen(advance(0), WORKER), seen(advance(1), ASSEMBLER)])
    later = opened(tables, trusted=frozenset((ASSEMBLER.public, STRANGER.public)))
    assert [known(later, n) for n in range(2)] == [None, page(1)]
    # The new key's own word brings it back, and a contradiction of the old one still counts.
    await later.admit([seen(advance(0), ASSEMBLER)])
    assert known(later, 0) == page(0)
    assert await later.admit([seen(advance(1, page=1), ASSEMBLER)]) == ["conflict"]


@pytest.mark.req("DRV-3")
async def test_evidence_of_another_domain_is_not_served() -> None:
    tables = MemoryTables()
    alice, bob = opened(tables), opened(tables, domain="bob")
    await alice.admit([seen(advance(0))])
    await bob.admit([seen(advance(0, page=1), domain="bob")])
    assert (known(alice, 0), known(bob, 0)) == (page(0), page(0, 1))
    # Even if it lies there: what is signed names its domain.
    await bob.admit([seen(advance(1))])
    assert known(bob, 1) is None
    assert not bob.sound


# -- samples ---------------------------------------------------------------------------------


def drawn(memo: DomainMemo, count: int, seed: bytes) -> list[InvocationId]:
    return [invocation_id(each.invocation) for each in memo.draw(count, seed)]


@pytest.mark.req("DRV-4")
async def test_samples_are_drawn_from_what_is_served() -> None:
    memo = opened(MemoryTables())
    all_of_them: list[Examined | InvocationId] = [seen(advance(n)) for n in range(20)]
    await memo.admit(all_of_them)
    await memo.admit([seen(advance(0, page=1)), seen(advance(1)).key])
    served = {seen(advance(n)).key for n in range(2, 20)}
    assert set(drawn(memo, 100, b"")) == served
    assert drawn(memo, 5, b"seed") == drawn(memo, 100, b"seed")[:5]
    assert drawn(memo, 0, b"seed") == []
    firsts = Counter(drawn(memo, 1, bytes((n,)))[0] for n in range(250))
    assert set(firsts) == served
    assert max(firsts.values()) < 40
