"""Durable puts per second: group commit with 1, 8 and 32 callers, against what a sync costs.

    python -m bench.store [--seconds 2] [--json FILE]

Each row is measured in the same run on the same disk:

- `append + fdatasync`: 1 KB appended to a file and synced, one after another: what the disk gives.
- `one commit per put`: SQLite with the same settings, one transaction for each put, under a lock:
  what a store without group commit would give, with as many callers.
- `group commit`: `store.sqlite_objects`, the product's own path, ids and all.

`ratio` is puts per second over `append + fdatasync` of this run; `puts/commit` says how many puts
shared a sync.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import header, table, write_json
from protocol.ids import BlockId
from store.blobs import BlobFiles
from store.schema import MIGRATIONS
from store.sqlite import Database, connect, migrate
from store.sqlite_objects import SqliteObjectStore

BODY_BYTES = 1024
CALLERS = (1, 8, 32)
COLUMNS = ["path", "callers", "puts/s", "ratio", "puts/commit", "p50_us", "p99_us"]

Put = Callable[[int], None]


def body(number: int) -> bytes:
    """A body of 1 KB that is like no other."""
    return number.to_bytes(8, "big") * (BODY_BYTES // 8)


def measure(put: Put, callers: int, seconds: float) -> tuple[float, float, float]:
    """Puts per second, and the median and 99th percentile of one put in microseconds."""
    numbers = itertools.count()
    taken_ns: list[int] = []
    end_ns = time.perf_counter_ns() + int(seconds * 1e9)

    def call() -> None:
        while (began := time.perf_counter_ns()) < end_ns:
            put(next(numbers))
            taken_ns.append(time.perf_counter_ns() - began)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    began_ns = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = (time.perf_counter_ns() - began_ns) / 1e9
    taken_ns.sort()
    p50, p99 = (taken_ns[len(taken_ns) * part // 100] / 1000 for part in (50, 99))
    return len(taken_ns) / wall_s, p50, p99


def calibrate(folder: Path, seconds: float) -> tuple[float, float, float]:
    """One caller that appends and syncs."""
    descriptor = os.open(folder / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def put(number: int) -> None:
        os.write(descriptor, body(number))
        os.fdatasync(descriptor)

    found = measure(put, 1, seconds)
    os.close(descriptor)
    return found


def one_commit_per_put(folder: Path, callers: int, seconds: float) -> tuple[float, float, float]:
    """The same rows and settings, without group commit."""
    path = folder / f"single-{callers}.db"
    connection = connect(path)
    migrate(connection, path, MIGRATIONS)
    connection.execute("INSERT INTO namespaces VALUES (1, 'n')")
    lock = threading.Lock()

    def put(number: int) -> None:
        content = body(number)
        row = (BlockId.of(content).digest, len(content), content)
        with lock, connection:
            connection.execute("INSERT INTO objects VALUES (NULL, 'block', ?, ?, ?)", row)
            connection.execute("INSERT INTO members VALUES (1, last_insert_rowid())")

    found = measure(put, callers, seconds)
    connection.close()
    return found


def group_commit(
    folder: Path, callers: int, seconds: float
) -> tuple[tuple[float, float, float], float]:
    """The product's store, and how many puts shared a commit."""
    database = Database(folder / f"group-{callers}.db")
    store = SqliteObjectStore(database, BlobFiles(folder / f"blobs-{callers}"))

    def put(number: int) -> None:
        content = body(number)
        store.put_many("n", [(BlockId.of(content), content)])

    found = measure(put, callers, seconds)
    shared = database.writer.submissions / max(1, database.writer.commits)
    store.close()
    return found, shared


def run(folder: Path, seconds: float) -> list[dict[str, object]]:
    """All rows."""
    rows: list[dict[str, object]] = []
    disk = calibrate(folder, seconds)

    def add(path: str, callers: int, found: tuple[float, float, float], shared: float) -> None:
        values = (path, callers, round(found[0]), round(found[0] / disk[0], 2), round(shared, 1))
        rows.append(dict(zip(COLUMNS, (*values, round(found[1]), round(found[2])), strict=True)))

    add("append + fdatasync", 1, disk, 1)
    for callers in CALLERS:
        add("one commit per put", callers, one_commit_per_put(folder, callers, seconds), 1)
        add("group commit", callers, *group_commit(folder, callers, seconds))
    return rows


def main() -> None:
    """Measures, prints, and writes the numbers where `--json` says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--folder", type=Path, help="where to write: the disk that is measured")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        rows = run(Path(folder), given.seconds)
    print(header())
    print(table(rows, COLUMNS))
    if given.json:
        write_json(given.json, "store", rows)


if __name__ == "__main__":
    main()
