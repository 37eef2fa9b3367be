"""Events: what a durable append costs beside a raw sync, and whether a read grows with the log.

    python -m bench.events [--seconds 2] [--full | --sizes N …] [--repeats N] [--folder DIR]
                           [--json PATH]

Appends: an event is built, signed, appended with a mark beside it in one transaction, and durable
when the call returns, with 1 and 32 callers, each the only writer of its own source. `raw sync` is
as many bytes appended to a file on the same disk, in the same run, with fdatasync; `ratio` is the
median over the raw sync's median, and `events/commit` says how many events shared one sync.

Pages: the newest page of logs of 10^3 to 10^5 events (10^6 with --full), read as a turn reads it:
where the log ends, then its newest entries, each checked against its id. The last line gives the
growth exponent: about 0 when the time does not depend on the length of the log.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.report import Cell, fitted_exponent, header, table, write_json
from protocol.event_log import START, Position
from protocol.events import Event, event_id, next_hlc, sign_event, source_id
from protocol.signing import SEED_BYTES, Signer
from store.events import StoredEvent
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.tables import Put

CALLERS = (1, 32)
SIZES = (1_000, 10_000, 100_000)
SIZE_FULL = 1_000_000
PAGE_EVENTS = 256
_BULK_EVENTS = 1_000

Row = dict[str, Cell]


class Writer:
    """The one writer of a source: signs events, each after the one before."""

    def __init__(self, number: int) -> None:
        self.signer = Signer(number.to_bytes(SEED_BYTES, "big"))
        self.source = source_id(self.signer.public)
        self.head = START

    def next(self) -> StoredEvent:
        """The next event of the source, as a store takes it."""
        event = Event(
            v=1,
            source=self.source,
            seq=self.head.seq + 1,
            hlc=next_hlc(self.head.hlc, time.time_ns()),
            kind="MergeSucceeded",
            subject=f"story {self.head.seq % 97}",
            body={"merge_commit": f"{self.head.seq:040x}"},
            prev=self.head.id,
            before="Merge",
            after="Done",
        )
        id = event_id(event)
        self.head = Position(event.seq, id, event.hlc)
        body = sign_event(event, self.signer)
        return StoredEvent(self.source, event.seq, id, event.hlc, event.kind, body)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="event appends and reads")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each append figure")
    parser.add_argument("--full", action="store_true", help="10^6 events too")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="events, two or more")
    parser.add_argument("--repeats", type=int, default=40, help="reads for each figure")
    parser.add_argument("--folder", type=Path, help="where to write: the disk that is measured")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    options = parser.parse_args(arguments)
    sizes = (*SIZES, SIZE_FULL) if options.full else tuple(options.sizes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        appends = append_rows(Path(folder), options.seconds)
        pages = [page_row(Path(folder), size, options.repeats) for size in sizes]
    growth = fitted_exponent(sizes, [float(str(row["p50 us"])) for row in pages])
    print(f"# Events\n\n{header()}\n")
    columns = ["path", "callers", "events/s", "p50 us", "p99 us", "ratio", "events/commit"]
    print(table(appends, columns))
    print(f"\nThe newest {PAGE_EVENTS} events, {options.repeats} reads\n")
    print(table(pages, ["events", "p50 us", "p99 us", "file MB"]))
    print(f"\nGrowth exponent (time ~ events^p): {growth:.3f}")
    if options.json:
        write_json(options.json, "events", [*appends, *pages], page_growth=growth)


def append_rows(folder: Path, seconds: float) -> list[Row]:
    """What an append costs, with each number of callers, and the raw sync before them."""
    size = len(Writer(1).next().body)
    raw = raw_sync(folder / "raw", size, seconds)
    rows: list[Row] = [_append_row("raw sync", 1, raw, raw, 1.0)]
    for callers in CALLERS:
        logs = SqliteEventLogs(Database(folder / f"append-{callers}.db"))
        writers = [Writer(number) for number in range(1, callers + 1)]

        def append(writer: Writer, logs: SqliteEventLogs = logs) -> None:
            entry = writer.next()
            mark = Put("marks", entry.source.digest, b"%d" % entry.seq)
            logs.append_soon([entry], [mark]).result()

        taken = measured([partial(append, writer) for writer in writers], seconds)
        shared = logs.database.writer.submissions / max(1, logs.database.writer.commits)
        rows.append(_append_row("event append", callers, taken, raw, shared))
        logs.close()
    return rows


def raw_sync(path: Path, size: int, seconds: float) -> list[int]:
    """Nanoseconds of each append of `size` bytes with fdatasync, one after another."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def put() -> None:
        os.write(descriptor, bytes(size))
        os.fdatasync(descriptor)

    taken = measured([put], seconds)
    os.close(descriptor)
    return taken


def measured(calls: Sequence[Callable[[], object]], seconds: float) -> list[int]:
    """Nanoseconds of each call, in order of length: each of `calls` again and again in a thread of
    its own for that long."""
    taken_ns: list[int] = []
    end_ns = time.perf_counter_ns() + int(seconds * 1e9)

    def work(call: Callable[[], object]) -> None:
        while (began_ns := time.perf_counter_ns()) < end_ns:
            call()
            taken_ns.append(time.perf_counter_ns() - began_ns)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(taken_ns)


def _append_row(
    path: str, callers: int, taken: Sequence[int], raw: Sequence[int], shared: float
) -> Row:
    mean_s = sum(taken) / len(taken) / 1e9
    return {
        "path": path,
        "callers": callers,
        "events/s": round(callers / mean_s),
        **_percentiles(taken),
        "ratio": taken[len(taken) // 2] / raw[len(raw) // 2],
        "events/commit": shared,
    }


def _percentiles(taken: Sequence[int]) -> Row:
    """The median and the 99th percentile, in microseconds, of nanoseconds in order of length."""
    return {f"p{part} us": taken[len(taken) * part // 100] / 1000 for part in (50, 99)}


def page_row(folder: Path, size: int, repeats: int) -> Row:
    """What the newest page of a log of `size` events costs."""
    path = folder / f"page-{size}.db"
    logs, writer = SqliteEventLogs(Database(path)), Writer(1)
    while writer.head.seq < size:
        count = min(_BULK_EVENTS, size - writer.head.seq)
        logs.append_soon([writer.next() for _ in range(count)]).result()
    logs.database.checkpoint()

    def read() -> None:
        head = logs.range(writer.source).head
        page = logs.read(writer.source, max(0, head - PAGE_EVENTS), PAGE_EVENTS)
        assert page[-1].seq == size

    read()
    taken = sorted(_timed(read) for _ in range(repeats))
    logs.close()
    row: Row = {"events": size, **_percentiles(taken), "file MB": path.stat().st_size / 1e6}
    path.unlink()
    return row


def _timed(call: Callable[[], object]) -> int:
    began_ns = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began_ns


if __name__ == "__main__":
    main()
