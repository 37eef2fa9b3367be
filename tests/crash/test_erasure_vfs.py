"""Erasing objects on a disk that fails at every operation, large bodies in files of their own
included: asked again, nothing of what was erased is in any file, and what others have is whole.

Over a store that unlinks only the files whose rows it has just deleted itself, the same sweep has
to find bodies that are left.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.ropes.erasure import erase_objects, traces
from protocol.errors import StoreFault
from protocol.messages.erasure import Erase
from store.blobs import BlobFiles
from store.fsck import FsckReport, check_objects
from store.objects import Swept
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.crash import totals
from tests.erasure_house import texts
from tests.lossy_blobs import LossyBlobs
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk
from tests.stores import FAST

SECRET, SHARED, KEPT = "nobody-shall-find", "both-have", "bob-has"
LARGE = 300_000
MINE = [*texts(SECRET, 20), *texts(f"{SECRET} large", 2, size=LARGE)]
BOTH = [*texts(SHARED, 5), *texts(f"{SHARED} large", 1, size=LARGE)]
THEIRS = [*texts(KEPT, 5), *texts(f"{KEPT} large", 1, size=LARGE)]
ORDER = Erase(domains=[], namespaces=["alice"], spared=[], principals=[], names=["alice"])
# `make crash` sets this to 1: every operation. The default looks at every third.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "3"))
_names = itertools.count()


class Forgetful(SqliteObjectStore):
    """Unlinks the files of the rows that it deletes, and never asks for others."""

    def sweep(self) -> Swept:
        self._had = set(self.unnamed())
        return super().sweep()

    def remove_unnamed(self) -> int:
        found = [path for path in self.unnamed() if path not in self._had]
        return self.database.write(lambda connection: self._remove_unnamed(found, connection))


def put_and_erase(store: SqliteObjectStore) -> None:
    """What alice and bob have, and the erasure of all that is alice's."""
    for namespace, objects in (("bob", THEIRS), ("bob", BOTH), ("alice", BOTH), ("alice", MINE)):
        store.put_many(namespace, objects)
    erase_objects(store, ORDER)


def run(folder: Path, kind: Any, *, fail_at: int, mode: str) -> tuple[int, list[str]]:
    """The operations that the disk saw, and what was wrong after all."""
    folder.mkdir()
    disk = LossyDisk(f"lossy-erasure-{next(_names)}", fail_at=fail_at, mode=mode)
    acknowledged = False
    blobs: LossyBlobs | None = None
    try:
        blobs = LossyBlobs(folder / "blobs", disk)
        store = kind(Database(folder / "objects.db", vfs=disk.name), blobs)
        try:
            put_and_erase(store)
            acknowledged = True
        finally:
            store.close()
    except (StoreFault, OSError):
        pass
    finally:
        disk.unregister()
    disk.power_off()
    if blobs is not None:
        blobs.power_off()
    return disk.operations, afterwards(folder, kind, acknowledged)


def afterwards(folder: Path, kind: Any, acknowledged: bool) -> list[str]:
    """What is wrong, on a sound disk, once the erasure is done: before it is asked for again, if it
    was acknowledged."""
    problems = []
    store = kind(Database(folder / "objects.db"), BlobFiles(folder / "blobs"))
    whole = store.has_many(("bob",), [id for id, _ in [*THEIRS, *BOTH]])
    if not acknowledged:
        erase_objects(store, ORDER)
    problems += traces(store, ORDER, str)
    if acknowledged and not all(whole):
        problems.append("what bob has is lost")
    kept = [each for each, there in zip([*THEIRS, *BOTH], whole, strict=True) if there]
    if store.get_many(("bob",), [id for id, _ in kept]) != [body for _, body in kept]:
        problems.append("what bob has is another")
    report = FsckReport()
    check_objects(store, report)
    problems += [f"{each.kind}: {each.what}" for each in report.problems]
    store.close()
    files = [path for path in folder.rglob("*") if path.is_file()]
    problems += [f"in {path.name}" for path in files if SECRET.encode() in path.read_bytes()]
    return problems


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


def sweep(folder: Path, kind: Any, mode: str, stride: int) -> dict[int, list[str]]:
    operations, problems = run(folder / "clean", kind, fail_at=0, mode=mode)
    assert problems == []
    found = {}
    for point in range(1, operations + 1, stride):
        _, found[point] = run(folder / f"{mode}-{point}", kind, fail_at=point, mode=mode)
    assert len(found) > 10
    return found


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
def test_no_fault_leaves_anything_of_what_was_erased(folder: Path, mode: str) -> None:
    found = sweep(folder, SqliteObjectStore, mode, STRIDE if mode == CUT else 2 * STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    totals.TOTALS[totals.FAULTS] += len(found)


def test_control_a_store_that_forgets_its_files_is_caught(folder: Path) -> None:
    found = sweep(folder, Forgetful, CUT, STRIDE)
    left = [problem for problems in found.values() for problem in problems]
    assert any(problem.startswith("orphan") for problem in left)
    assert any(problem.startswith("in ") for problem in left)
