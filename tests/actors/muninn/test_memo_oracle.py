"""The memo of one domain against sets of what was said, also while its index is damaged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.muninn.evidence import EvidenceLog
from actors.muninn.index import MEMO, Index, read_header
from actors.muninn.memo import DomainMemo
from store.memory_tables import MemoryTables
from store.tables import Delete, Put, Tables
from tests.derivations import ASSEMBLER, WORKER, advance, seen
from tests.memos import index_tables, known, opened, page
from tests.stores import tables as tables_of

KEYS = 5


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
