"""The memo of one domain, broken in every way that it can be: its log decides, or nothing is
served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from actors.muninn.evidence import EvidenceLog, last_generation
from actors.muninn.index import MEMO
from actors.muninn.memo import DomainMemo
from store.memory_tables import MemoryTables
from store.tables import Change, Tables
from tests.derivations import FailingTables, advance, seen
from tests.memos import index_tables, known, opened, page
from tests.stores import KINDS
from tests.stores import tables as tables_of


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
