"""Event logs on disk: after reopening, under many callers, and with bytes of the file damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import Conflict, CorruptObject, HuginnError
from store.events import LogRange, StoredEvent
from store.fsck import FsckReport, check_database
from store.sqlite import Database
from store.sqlite_events import TRIM_ENTRIES, SqliteEventLogs
from tests.event_logs import (
    SIGNERS,
    SOURCE,
    chain,
    entry_after,
    position,
    source_of,
    stored,
    stored_chain,
)

CHAIN = stored_chain(40)
OTHER = stored_chain(6, signer=SIGNERS[1])
OTHER_SOURCE = source_of(SIGNERS[1])


def opened(folder: Path) -> SqliteEventLogs:
    return SqliteEventLogs(Database(folder / "events.db"))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[SqliteEventLogs]:
    found = opened(tmp_path)
    found.append_soon([*CHAIN, *OTHER]).result()
    yield found
    found.close()


def damage(folder: Path, *entries: StoredEvent, at: int = 100) -> None:
    """Flips a bit of byte `at` of each entry, in the file itself."""
    path = folder / "events.db"
    data = bytearray(path.read_bytes())
    for entry in entries:
        assert data.count(entry.body) == 1
        data[data.find(entry.body) + at] ^= 0x10
    path.write_bytes(data)


def alter(logs: SqliteEventLogs, statement: str) -> None:
    logs.database.write(lambda connection: connection.execute(statement).fetchall())


@pytest.mark.req("EVT-2")
def test_all_is_there_after_reopening(logs: SqliteEventLogs, tmp_path: Path) -> None:
    twin = stored(entry_after(position(chain(5)[-1]), "twin"))
    logs.keep_evidence(twin)
    logs.trim(SOURCE, 10)
    logs.close()
    again = opened(tmp_path)
    assert again.range(SOURCE) == LogRange(11, 40, CHAIN[-1].id)
    assert again.read(SOURCE, 0, 99) == CHAIN[10:]
    assert again.evidence(SOURCE) == [twin]
    assert again.check() == []
    again.close()


@pytest.mark.req("EVT-2")
@pytest.mark.parametrize("lost", [1, 3, 40])
@pytest.mark.parametrize("newest", [None, 2])
def test_a_torn_tail_is_truncated_and_said(
    logs: SqliteEventLogs, tmp_path: Path, lost: int, newest: int | None
) -> None:
    logs.close()
    damage(tmp_path, *CHAIN[-lost:])
    again = opened(tmp_path)
    with pytest.raises(CorruptObject, match="entry 40"):
        again.read(SOURCE, 39, 1)
    assert again.check(newest=newest) == [SOURCE]
    whole = len(CHAIN) - lost
    assert again.range(SOURCE) == LogRange(1, whole, CHAIN[whole - 1].id if whole else None)
    assert again.read(SOURCE, 0, 99) == CHAIN[:whole]
    assert again.read(OTHER_SOURCE, 0, 99) == OTHER
    assert again.check() == []
    # The log goes on from its last whole entry.
    again.append_soon(CHAIN[whole:]).result()
    assert again.read(SOURCE, 0, 99) == CHAIN
    again.close()


@pytest.mark.req("EVT-2")
@pytest.mark.parametrize("at", [0, 20, 38])
def test_a_bad_middle_is_loud_and_left(logs: SqliteEventLogs, tmp_path: Path, at: int) -> None:
    logs.close()
    damage(tmp_path, CHAIN[at])
    again = opened(tmp_path)
    for read in (again.check, lambda: again.read(SOURCE, at, 1)):
        with pytest.raises(CorruptObject) as found:
            read()
        assert found.value.details == {"source": str(SOURCE), "seq": at + 1}
    assert again.range(SOURCE).head == 40
    assert again.read(SOURCE, at + 1, 99) == CHAIN[at + 1 :]
    assert again.read(OTHER_SOURCE, 0, 99) == OTHER
    again.close()


@pytest.mark.parametrize("at", [0, 3, 50, 150, -66, -64, -30, -1])
def test_damage_anywhere_in_an_entry_is_found(
    logs: SqliteEventLogs, tmp_path: Path, at: int
) -> None:
    logs.close()
    damage(tmp_path, CHAIN[20], at=at % len(CHAIN[20].body))
    again = opened(tmp_path)
    for read in (again.check, lambda: again.read(SOURCE, 0, 99)):
        with pytest.raises(CorruptObject, match="entry 21"):
            read()
    again.close()


def test_the_newest_alone_are_looked_at_when_asked(logs: SqliteEventLogs, tmp_path: Path) -> None:
    logs.close()
    damage(tmp_path, CHAIN[0])
    again = opened(tmp_path)
    assert again.check(newest=5) == []
    with pytest.raises(CorruptObject):
        again.check(newest=40)
    again.close()


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("DELETE FROM events WHERE seq = 1 AND source = 1", 1),
        ("DELETE FROM events WHERE seq = 20 AND source = 1", 20),
        ("UPDATE events SET id = zeroblob(32) WHERE seq = 7 AND source = 1", 7),
        ("UPDATE events SET hlc = 1 WHERE seq = 7 AND source = 1", 7),
        ("UPDATE event_sources SET id = zeroblob(32) WHERE number = 1", 41),
        ("UPDATE event_sources SET head = 39 WHERE number = 1", 41),
        ("UPDATE event_sources SET before = zeroblob(32) WHERE number = 1", 1),
    ],
)
def test_rows_that_were_tampered_with_are_found(
    logs: SqliteEventLogs, statement: str, seq: int
) -> None:
    alter(logs, statement)
    with pytest.raises(CorruptObject) as found:
        logs.check()
    assert found.value.details == {"source": str(SOURCE), "seq": seq}


def test_missing_rows_are_never_a_shorter_page(logs: SqliteEventLogs) -> None:
    alter(logs, "DELETE FROM events WHERE seq IN (20, 39, 40) AND source = 1")
    assert logs.read(SOURCE, 0, 19) == CHAIN[:19]
    for after, limit in ((0, 20), (19, 1), (20, 99), (38, 1), (38, 9), (39, 1)):
        with pytest.raises(CorruptObject, match="missing"):
            logs.read(SOURCE, after, limit)
        with pytest.raises(CorruptObject, match="missing"):
            logs.sizes(SOURCE, after, limit)
    with pytest.raises(CorruptObject, match="missing"):
        logs.trim(SOURCE, 20)


def test_evidence_that_was_damaged_is_loud(logs: SqliteEventLogs) -> None:
    logs.keep_evidence(stored(entry_after(position(chain(5)[-1]), "twin")))
    alter(logs, "UPDATE event_evidence SET hlc = 1")
    with pytest.raises(CorruptObject, match="evidence"):
        logs.check()
    alter(logs, "UPDATE event_evidence SET body = x'00'")
    with pytest.raises(CorruptObject, match="entry 6"):
        logs.evidence(SOURCE)


@pytest.mark.req("EVT-2")
def test_one_of_many_callers_gets_each_number(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    heads = chain(30)
    rivals = [
        [stored(entry), stored(entry_after(position(heads[at - 1]), "rival"))]
        for at, entry in enumerate(heads)
        if at
    ]
    logs.append_soon([stored(heads[0])]).result()

    def put(entry: StoredEvent) -> bool:
        while True:
            try:
                logs.append_soon([entry]).result()
            except Conflict as error:
                if error.details["expected"] < error.details["found"]:  # type: ignore[operator]
                    continue
                return False
            return True

    with ThreadPoolExecutor(2) as pool:
        taken = [list(pool.map(put, pair)) for pair in rivals]
    assert all(sum(pair) == 1 for pair in taken)
    assert [entry.seq for entry in logs.read(SOURCE, 0, 99)] == list(range(1, 31))
    logs.close()


def test_a_long_log_is_trimmed_and_dropped_in_steps(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    long = stored_chain(2 * TRIM_ENTRIES + 40)
    logs.append_soon(long).result()
    before = logs.database.writer.submissions
    assert logs.trim(SOURCE, len(long) - 20) == len(long) - 20
    assert logs.database.writer.submissions == before + 4
    assert logs.read(SOURCE, 0, 99) == long[-20:]
    assert logs.check() == []
    assert logs.drop(SOURCE) == 20
    assert logs.sources() == []
    logs.close()


@pytest.mark.req("EVT-9")
def test_erased_entries_leave_the_file(logs: SqliteEventLogs, tmp_path: Path) -> None:
    logs.trim(SOURCE, 30)
    logs.drop(OTHER_SOURCE)
    logs.database.checkpoint()
    data = b"".join((tmp_path / name).read_bytes() for name in os.listdir(tmp_path))
    assert data.count(CHAIN[39].body) == 1
    for gone in (*CHAIN[:30], *OTHER):
        assert gone.body[-64:] not in data
        assert gone.body[60:200] not in data


def checked(logs: SqliteEventLogs, *, repair: bool = False) -> FsckReport:
    report = FsckReport()
    check_database(logs.database, report, repair=repair)
    return report


def test_fsck_counts_events_and_leaves_a_bad_middle(logs: SqliteEventLogs) -> None:
    report = checked(logs)
    assert (report.ok, report.event_logs, report.events) == (True, 2, 46)
    alter(logs, "UPDATE events SET body = x'00' WHERE seq = 7 AND source = 1")
    for repair in (False, True):
        report = checked(logs, repair=repair)
        assert [(each.kind, each.action) for each in report.problems] == [("event log", "reported")]
        assert "entry 7" in report.problems[0].where
        assert not report.ok
    assert logs.range(SOURCE).head == 40


def test_fsck_cuts_a_torn_tail_only_when_asked(logs: SqliteEventLogs) -> None:
    alter(logs, "UPDATE events SET body = x'00' WHERE seq > 38 AND source = 1")
    report = checked(logs)
    assert [(each.kind, each.action) for each in report.problems] == [
        ("torn event log", "reported")
    ]
    assert not report.ok
    assert logs.range(SOURCE).head == 40
    report = checked(logs, repair=True)
    assert [each.action for each in report.problems] == ["removed"]
    assert report.ok
    assert checked(logs).problems == []
    assert logs.read(SOURCE, 0, 99) == CHAIN[:38]


def test_fsck_says_what_is_wrong_with_evidence(logs: SqliteEventLogs) -> None:
    logs.keep_evidence(stored(entry_after(position(chain(5)[-1]), "twin")))
    alter(logs, "UPDATE event_evidence SET body = x'00'")
    (problem,) = checked(logs).problems
    assert (problem.kind, problem.action) == ("event log", "reported")


def test_rows_that_cannot_be(logs: SqliteEventLogs) -> None:
    for statement in (
        "INSERT INTO events VALUES (1, 40, zeroblob(32), 1, 'K', x'', 0)",
        "INSERT INTO events VALUES (9, 1, zeroblob(32), 1, 'K', x'', 0)",
        "INSERT INTO events VALUES (1, 41, zeroblob(31), 1, 'K', x'', 0)",
        "UPDATE event_sources SET head = first - 2",
        "INSERT INTO event_sources (source, first, head) VALUES (x'00', 1, 0)",
    ):
        with pytest.raises(HuginnError):
            alter(logs, statement)
