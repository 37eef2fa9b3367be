"""`huginn fsck --erased`: that nothing is left of what was erased.

Three proofs. Every room's file, and the directories of pages and keys, are looked through for what
the erasure named. Nothing is there that belongs to nothing else: no turn without a session, no log
without a source, no file without a row. And no file has anything in it that it does not say: every
byte that no row owns is zero, so that nothing of any row that was ever deleted is there to be
found. Work that went on after an erasure may leave such bytes of its own; `--repair` writes the
files anew.

What somebody has again, a name that was given a second time, or a namespace in which somebody goes
on, is not looked for. What is there must be younger than the erasure, where it says how old it is:
sessions, evidence, pages and their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.cli.erased_files import (
    TRACE,
    check_bodies,
    check_dead_space,
    check_old_pages,
    check_pages,
    check_source_keys,
    noting,
)

if TYPE_CHECKING:
    from actors.authority.erasures import KeptErasure
    from actors.authority.principals import PrincipalRecord
    from protocol.messages.erasure import Erase
    from store.fsck import FsckReport
    from store.sqlite_tables import SqliteTables

EVERYTHING: Final = "all"
# Names that are told to whoever asked for one that is none.
_NAMES_TOLD: Final = 20


def check_erased(home: Path, what: str, report: FsckReport, *, repair: bool) -> int:
    """Look for what `what` names (a domain, a principal, a namespace, the id of an erasure, or
    `all`); how many erasures that were. A name of none is a problem. Nothing else has `home`
    open."""
    check_dead_space(home, report, repair=repair)
    erasures: list[KeptErasure] = []
    records: list[PrincipalRecord] = []
    with _tables(home, "authority", report) as tables:
        if tables is not None:
            erasures, records = _erasures(tables), _records(tables)
    mine = [each for each in erasures if what == EVERYTHING or what in _names(each)]
    if not mine and what != EVERYTHING:
        report.add("unknown", what, _unknown(erasures))
        _check_order(home, _of_domain(what), None, records, report)
    for each in mine:
        if each.is_open:
            report.add(TRACE, each.row.id, f"is not done: {each.row.waits or 'not due yet'}")
        else:
            _check_order(home, each.order, each.row.asked_ns, records, report)
    _check_events(home, report, repair)
    _check_store(home, [each.order for each in mine if not each.is_open], records, report, repair)
    return len(mine)


def _of_domain(name: str) -> Erase:
    from actors.authority.targets import of_domain

    return of_domain(name)


def _names(kept: KeptErasure) -> set[str]:
    order = kept.order
    return {kept.row.id, kept.row.name, *order.names, *order.domains, *order.namespaces}


def _unknown(erasures: list[KeptErasure]) -> str:
    if not erasures:
        return "no erasure is called so, and none was ever asked for here"
    # Of an object neither its id is kept nor a name that means anything.
    known = sorted({each.row.id if each.order.objects else each.row.name for each in erasures})
    rest = f" and {len(known) - _NAMES_TOLD} more" if len(known) > _NAMES_TOLD else ""
    return f"no erasure is called so: there are {', '.join(known[:_NAMES_TOLD])}{rest}"


def _unused(order: Erase, records: list[PrincipalRecord]) -> Erase:
    """The order without the names, domains and namespaces that somebody has now."""
    from msgspec import structs

    from protocol.resource import path_covers

    live = [record.asked for record in records if not record.revoked]
    held, keys = {each.domain for each in live}, {each.public_key for each in live}
    called = {each.name for each in live}
    spaces = order.namespaces
    if order.objects is None:
        spaces = [
            path
            for path in order.namespaces
            if not any(
                path_covers(each.namespace, path) or path_covers(path, each.namespace)
                for each in live
                if each.namespace not in order.spared
            )
        ]
    return structs.replace(
        order,
        domains=[each for each in order.domains if each not in held],
        namespaces=spaces,
        principals=[each for each in order.principals if each not in keys],
        names=[each for each in order.names if each not in called],
    )


def _check_order(
    home: Path,
    whole: Erase,
    asked_ns: int | None,
    records: list[PrincipalRecord],
    report: FsckReport,
) -> None:
    """Look in every file but the object store for what `whole` took, which was asked for at
    `asked_ns` (None: never)."""
    from msgspec import structs

    from actors.authority import erasures as authority
    from actors.events import erasure as events
    from actors.gateway import keys
    from actors.gateway.transports import matrix_inbox
    from actors.muninn import erasure as muninn
    from actors.worker import receipts

    order = _unused(whole, records)
    held = sorted(set(whole.domains) - set(order.domains))
    used = structs.replace(whole, namespaces=sorted(set(whole.namespaces) - set(order.namespaces)))
    found: dict[str, list[str]] = {}
    with _tables(home, "authority", report) as tables:
        if tables is not None:
            found["authority"] = authority.traces(tables, order)
    with _tables(home, "muninn", report) as tables:
        if tables is not None:
            found["muninn"] = muninn.traces(tables, order.domains, order.principals)
            if asked_ns is not None:
                found["muninn"] += muninn.older(tables, held, asked_ns)
    with _tables(home, "events", report) as tables:
        if tables is not None:
            found["events"] = events.traces(tables, order, authority.fingerprint)
            if asked_ns is not None:
                found["events"] += events.older(tables, used, asked_ns)
    with _tables(home, "worker", report) as tables:
        if tables is not None:
            charges = tables.keyed("charges")
            found["worker"] = receipts.traces(tables.keyed("receipts"), order.domains)
            found["worker"] += [
                f"the charges of {key.hex()}" for key in order.principals if charges.get(key)
            ]
    with _tables(home, "gateway", report) as tables:
        if tables is not None:
            found["gateway"] = keys.traces(tables.keyed("keys"), order)
            found["gateway"] += matrix_inbox.traces(tables, order, authority.fingerprint)
    for room, traces in found.items():
        for trace in traces:
            report.add(TRACE, f"the {room} room", f"{trace} is there still")
    check_pages(home, order.domains, report)
    if asked_ns is not None:
        check_old_pages(home, held, asked_ns, report)


def _check_events(home: Path, report: FsckReport, repair: bool) -> None:
    """That everything in the events room belongs to a session or a source that is there."""
    from actors.events import erasure as events
    from store.sqlite_events import SqliteEventLogs

    with _tables(home, "events", report) as tables:
        if tables is None:
            return
        for stray in events.strays(tables, SqliteEventLogs(tables.database).sources()):
            report.add(TRACE, "the events room", stray)
        check_source_keys(home, events.source_keys(tables), report, repair=repair)


def _check_store(
    home: Path,
    orders: list[Erase],
    records: list[PrincipalRecord],
    report: FsckReport,
    repair: bool,
) -> None:
    from actors.authority.erasures import fingerprint
    from actors.ropes.erasure import traces
    from store.blobs import BlobFiles
    from store.sqlite import Database
    from store.sqlite_objects import SqliteObjectStore

    path = home / "rooms" / "ropes.sqlite"
    if not path.exists():
        return
    with noting(report, path):
        store = SqliteObjectStore(Database(path), BlobFiles(home / "blobs"))
        try:
            for order in orders:
                for trace in traces(store, _unused(order, records), fingerprint):
                    report.add(TRACE, "the ropes room", f"{trace} is there still")
            orphans = store.count_orphans()
            if orphans:
                report.add(TRACE, "the ropes room", f"{orphans} objects are in no namespace")
            check_bodies(store, report, repair=repair)
        finally:
            store.close()


def _erasures(tables: SqliteTables) -> list[KeptErasure]:
    from actors.authority.erasures import TABLE, KeptErasure
    from protocol.record import decode_record

    return [decode_record(KeptErasure, row) for _, row in tables.keyed(TABLE).items()]


def _records(tables: SqliteTables) -> list[PrincipalRecord]:
    from actors.authority.principals import PrincipalRecord
    from protocol.record import decode_record

    rows = tables.keyed("principals").items()
    return [decode_record(PrincipalRecord, row) for _, row in rows]


@contextmanager
def _tables(home: Path, room: str, report: FsckReport) -> Iterator[SqliteTables | None]:
    """The tables of a room; None if it has no file, or one that cannot be read."""
    from store.sqlite import Database
    from store.sqlite_tables import SqliteTables

    path = home / "rooms" / f"{room}.sqlite"
    tables: SqliteTables | None = None
    if path.exists():
        with noting(report, path):
            tables = SqliteTables(Database(path))
    try:
        with noting(report, path):
            yield tables
    finally:
        if tables is not None:
            tables.close()
