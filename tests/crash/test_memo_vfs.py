"""The memo on a disk that fails at every operation: what was acknowledged is known or quarantined
afterwards, also when the fault came in the middle of a rebuild; and nothing else is ever served.

Over a store that acknowledges before a commit is durable, the same sweep has to find losses.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.derivation import invocation_id
from protocol.errors import StoreFault
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from tests.crash.totals import FAULTS, TOTALS
from tests.derivations import advance, seen
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk, WeakDatabase
from tests.memos import opened
from tests.stores import FAST

KEYS = 5
SAID = {(n, page): seen(advance(n, page=page)) for n in range(KEYS) for page in (0, 1)}
# `make crash` sets this to 1: every operation. The default looks at every third.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "3"))
_names = itertools.count()


async def live(tables: SqliteTables) -> dict[int, str]:
    """Reports, a conflict and a rebuild, whatever fails; what was acknowledged last of each."""
    memo = opened(tables)
    acknowledged: dict[int, str] = {}

    async def report(number: int, page: int) -> None:
        (told,) = await memo.admit([SAID[number, page]])
        if told != "unknown":
            acknowledged[number] = told

    for number in range(3):
        await report(number, 0)
    await report(1, 1)
    await memo.rebuild()
    for number in range(3, KEYS):
        await report(number, 0)
    await report(3, 1)
    await report(0, 0)
    return acknowledged


async def afterwards(tables: SqliteTables, acknowledged: dict[int, str]) -> list[str]:
    """What is wrong, on a sound disk."""
    memo = opened(tables)
    await memo.mend()
    problems = [] if memo.sound else ["it cannot be mended"]
    if memo.figures().get("damaged"):
        problems.append("its log was damaged")
    for number in range(KEYS):
        found = memo.find(invocation_id(advance(number).invocation))
        told = acknowledged.get(number)
        if found is not None and found.examined.evidence.outputs != advance(number).outputs:
            problems.append(f"{number}: another answer")
        if told == "conflict" and found is not None:
            problems.append(f"{number}: its quarantine is lost")
        if told in ("inserted", "already-present") and found is None:
            # It may be that the contradiction arrived, and its acknowledgement did not.
            (again,) = await memo.admit([SAID[number, 0]])
            if again != "conflict":
                problems.append(f"{number}: its evidence is lost")
    return problems


def run(folder: Path, kind: type[Database], *, fail_at: int, mode: str) -> tuple[int, list[str]]:
    """The operations that the disk saw, and what was wrong after all."""
    disk = LossyDisk(f"lossy-memo-{next(_names)}", fail_at=fail_at, mode=mode)
    folder.mkdir()
    acknowledged: dict[int, str] = {}
    try:
        tables = SqliteTables(kind(folder / "t.db", vfs=disk.name))
    except StoreFault:
        pass
    else:
        acknowledged = asyncio.run(live(tables))
        tables.close()
    finally:
        disk.unregister()
    disk.power_off()
    with Database(folder / "t.db") as database:
        return disk.operations, asyncio.run(afterwards(SqliteTables(database), acknowledged))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


def sweep(folder: Path, kind: type[Database], mode: str, stride: int) -> dict[int, list[str]]:
    operations, problems = run(folder / "clean", kind, fail_at=0, mode=mode)
    assert problems == []
    found = {}
    for point in range(1, operations + 1, stride):
        _, found[point] = run(folder / f"{mode}-{point}", kind, fail_at=point, mode=mode)
    assert len(found) > 10
    return found


@pytest.mark.req("DRV-4", "DRV-5")
@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
def test_no_fault_loses_evidence_or_a_quarantine(folder: Path, mode: str) -> None:
    found = sweep(folder, Database, mode, STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    TOTALS[FAULTS] += len(found)


def test_control_a_store_that_is_not_durable_is_caught(folder: Path) -> None:
    found = sweep(folder, WeakDatabase, CUT, STRIDE)
    assert [problems for problems in found.values() if problems]
