"""The process that `test_events_kill` kills: appends events and says which were acknowledged.

    events_child.py FOLDER WHEN COUNT [early]

WHEN is where it kills itself, at the COUNT-th time: `commit` just before a commit, `committed`
just after one; or `never`, and then the parent does it. `early` acknowledges before the append,
which is the mistake to be caught. What is said is `WRITER_STEP * writer + seq`. Each append sets
the source's mark in the same transaction, and goes on from where the log ends.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import apsw

from protocol.event_log import Position
from protocol.events import read_entry
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.tables import Put
from tests.crash.store_child import Trap
from tests.event_logs import SIGNERS, entry_after, position, source_of, stored

WRITERS: Final = len(SIGNERS)
WRITER_STEP: Final = 10**6
APPENDS_MAX: Final = 200
# Large enough that one entry is more than one page of the file.
TEXT: Final = "why " * 400


def head_of(logs: SqliteEventLogs, writer: int) -> Position:
    """Where the log of `writer` ends."""
    source = source_of(SIGNERS[writer])
    head = logs.range(source)
    hlc = 0
    if head.head:
        hlc = read_entry(logs.read(source, head.head - 1, 1)[0].body)[1].hlc
    return Position(head.head, head.id, hlc)


def main(folder: Path, when: str, count: int, early: bool) -> None:
    trap = Trap(count)
    logs = SqliteEventLogs(Database(folder / "events.db"))

    def arm(connection: apsw.Connection) -> None:
        if when == "commit":
            connection.set_commit_hook(trap.step)
        if when == "committed":
            connection.set_wal_hook(lambda *_: int(trap.step()))

    logs.database.write(arm)

    def append(writer: int, appends: int) -> None:
        head = head_of(logs, writer)
        for _ in range(appends):
            entry = entry_after(head, signer=SIGNERS[writer], kind="Reject", body={"reason": TEXT})
            said = b"%d\n" % (WRITER_STEP * writer + entry.event.seq)
            if early:
                os.write(1, said)
            mark = Put("marks", entry.event.source.digest, b"%d" % entry.event.seq)
            logs.append_soon([stored(entry)], [mark]).result()
            if not early:
                os.write(1, said)
            head = position(entry)

    if when == "never":
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(append, range(WRITERS), [APPENDS_MAX * 100] * WRITERS))
    else:
        append(0, APPENDS_MAX)
    os.write(1, b"done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "early" in sys.argv[4:])
