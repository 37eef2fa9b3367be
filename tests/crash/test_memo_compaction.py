"""A memo on a disk that fails at every operation while its log is compacted: afterwards there is
the old log or the new one, whole, and both say the same.

Over one that drops the old log before it writes the new one, the same sweep has to find losses.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from actors.muninn.evidence import EvidenceLog
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.derivation import invocation_id
from protocol.errors import StoreFault
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from store.tables import Change, Drop
from tests.crash.totals import FAULTS, TOTALS
from tests.derivations import advance, seen
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk
from tests.memos import opened
from tests.stores import FAST

KEYS = 4
LIMITS = MemoLimits(entries_max=16, resident_max=100)
# `make crash` sets this to 1: every operation. The default looks at every third.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "3"))
_names = itertools.count()


class Hasty(SqliteTables):
    """Drops the old log before it writes the new one."""

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        if changes and isinstance(changes[0], Drop):
            super().apply_soon([Drop(EvidenceLog(self, "alice", 0).name)]).result()
        return super().apply_soon(changes)


def fill(path: Path) -> None:
    """A crowded log: four invocations, one of them contradicted, one without inputs now."""

    async def say(memo: DomainMemo) -> None:
        said = [seen(advance(n), run=run) for run in range(4) for n in range(KEYS)]
        await memo.admit(said[:14])
        await memo.admit([seen(advance(1, page=1)), seen(advance(2)).key])
        assert memo.is_crowded

    with Database(path) as database:
        asyncio.run(say(opened(SqliteTables(database), LIMITS)))


def afterwards(tables: SqliteTables) -> list[str]:
    """What is wrong, on a sound disk."""
    memo = opened(tables, LIMITS)
    asyncio.run(memo.mend())
    problems = [] if memo.sound else ["it cannot be mended"]
    figures = memo.figures()
    if figures["damaged"]:
        problems.append("its log was damaged")
    # The old one; or a checkpoint, four first testimonies, all five of the quarantine, an expiry.
    if figures["evidence"] not in (16, 10):
        problems.append(f"its log has {figures['evidence']} entries")
    served = [memo.find(invocation_id(advance(n).invocation)) is not None for n in range(KEYS)]
    if served != [True, False, False, True]:
        problems.append(f"it serves {served}")
    if [key for key, _ in memo.suspicions(9)] != [seen(advance(1)).key]:
        problems.append("its quarantine is lost")
    again = asyncio.run(memo.admit([seen(advance(n), run=9) for n in range(KEYS)]))
    if [each == "conflict" for each in again] != [False, True, False, False]:
        problems.append(f"it judges {again}")
    return problems


def run(
    folder: Path, kind: type[SqliteTables], *, fail_at: int, mode: str
) -> tuple[int, list[str]]:
    """The operations that the disk saw, and what was wrong after all."""
    folder.mkdir()
    path = folder / "t.db"
    fill(path)
    disk = LossyDisk(f"lossy-compaction-{next(_names)}", fail_at=fail_at, mode=mode)
    try:
        tables = kind(Database(path, vfs=disk.name))
    except StoreFault:
        pass
    else:
        asyncio.run(opened(tables, LIMITS).compact())
        tables.close()
    finally:
        disk.unregister()
    disk.power_off()
    with Database(path) as database:
        return disk.operations, afterwards(SqliteTables(database))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


def sweep(folder: Path, kind: type[SqliteTables], mode: str, stride: int) -> dict[int, list[str]]:
    operations, problems = run(folder / "clean", kind, fail_at=0, mode=mode)
    assert problems == []
    found = {}
    for point in range(1, operations + 1, stride):
        _, found[point] = run(folder / f"{mode}-{point}", kind, fail_at=point, mode=mode)
    assert len(found) > 5
    return found


@pytest.mark.req("DRV-3", "DRV-4", "DRV-5")
@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
def test_a_crash_leaves_the_old_log_or_the_new_one(folder: Path, mode: str) -> None:
    found = sweep(folder, SqliteTables, mode, STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    TOTALS[FAULTS] += len(found)


def test_control_a_log_that_is_dropped_too_soon_is_caught(folder: Path) -> None:
    found = sweep(folder, Hasty, CUT, STRIDE)
    assert [problems for problems in found.values() if problems]
