"""`huginn fsck --erased`: that nothing is left of what was erased.

Two proofs. Every room's file, and the directories of pages and keys, are looked through for what
the erasure named. And no file has anything in it that it does not say: every byte that no row owns
is zero, so that nothing of any row that was ever deleted is there to be found. Work that went on
after an erasure may leave such bytes of its own; `--repair` writes the files anew.

What somebody has again, a name that was given a second time, is not looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocol.errors import HuginnError

if TYPE_CHECKING:
    from actors.authority.erasures import KeptErasure
    from actors.authority.principals import PrincipalRecord
    from protocol.messages.erasure import Erase
    from store.fsck import FsckReport
    from store.sqlite_tables import SqliteTables

EVERYTHING: Final = "all"
_TRACE: Final = "erased"


def check_erased(home: Path, what: str, report: FsckReport, *, repair: bool) -> int:
    """Look for what `what` names (a domain, a principal, a namespace, the id of an erasure, or
    `all`); how many erasures that were. Nothing else has `home` open."""
    _check_files(home, report, repair)
    with _tables(home, "authority", report) as tables:
        if tables is None:
            return 0
        erasures, records = _erasures(tables), _records(tables)
    mine = [each for each in erasures if what == EVERYTHING or what in _names(each)]
    for each in mine:
        if each.is_open:
            report.add(_TRACE, each.row.id, f"is not done: {each.row.waits or 'not due yet'}")
    done = [each.order for each in mine if not each.is_open]
    if not mine and what != EVERYTHING:
        from actors.authority.targets import of_domain

        done = [of_domain(what)]
    for order in done:
        _check_order(home, _unused(order, records), records, report)
    return len(mine)


def _names(kept: KeptErasure) -> set[str]:
    return {kept.row.id, kept.row.name, *kept.order.names}


def _unused(order: Erase, records: list[PrincipalRecord]) -> Erase:
    """The order without the domains and namespaces that somebody has now."""
    from msgspec import structs

    from protocol.resource import path_covers

    live = [record.asked for record in records if not record.revoked]
    held = {each.domain for each in live}
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
    domains = [each for each in order.domains if each not in held]
    return structs.replace(order, domains=domains, namespaces=spaces)


def _check_order(
    home: Path, order: Erase, records: list[PrincipalRecord], report: FsckReport
) -> None:
    from actors.events import erasure as events
    from actors.gateway.keys import ApiKeys
    from actors.gateway.transports import matrix_inbox
    from actors.muninn import erasure as muninn
    from actors.worker import receipts

    kept = {record.asked.name for record in records if record.revoked}
    found = {"authority": [f"principal {name}" for name in order.names if name in kept]}
    with _tables(home, "muninn", report) as tables:
        if tables is not None:
            found["muninn"] = muninn.traces(tables, order.domains, order.principals)
    with _tables(home, "events", report) as tables:
        if tables is not None and order.objects is None:
            found["events"] = events.traces(tables, order)
    with _tables(home, "worker", report) as tables:
        if tables is not None:
            charges = tables.keyed("charges")
            found["worker"] = receipts.traces(tables.keyed("receipts"), order.domains)
            found["worker"] += [
                f"the charges of {key.hex()}" for key in order.principals if charges.get(key)
            ]
    with _tables(home, "gateway", report) as tables:
        if tables is not None:
            rows = ApiKeys(tables.keyed("keys")).principals()
            found["gateway"] = [
                f"the key of {row.principal}" for row in rows if row.domain in order.domains
            ]
            if order.objects is None:
                found["gateway"] += matrix_inbox.traces(tables, order)
    for room, traces in found.items():
        for trace in traces:
            report.add(_TRACE, f"the {room} room", f"{trace} is there still")
    _check_objects(home, order, report)
    _check_pages(home, order.domains, report)


def _check_objects(home: Path, order: Erase, report: FsckReport) -> None:
    from actors.authority.erasures import fingerprint
    from actors.ropes.erasure import traces
    from store.blobs import BlobFiles
    from store.sqlite import Database
    from store.sqlite_objects import SqliteObjectStore

    path = home / "rooms" / "ropes.sqlite"
    if not path.exists():
        return
    with _noting(report, path):
        store = SqliteObjectStore(Database(path), BlobFiles(home / "blobs"))
        try:
            for trace in traces(store, order, fingerprint):
                report.add(_TRACE, "the ropes room", f"{trace} is there still")
            orphans = store.count_orphans()
            if orphans:
                report.add(_TRACE, "the ropes room", f"{orphans} objects are in no namespace")
        finally:
            store.close()


def _check_pages(home: Path, domains: list[str], report: FsckReport) -> None:
    from store.pages.header import domain_digest

    for domain in domains:
        name = domain_digest(domain).hex()
        for path in (home / "pages" / name, home / "keys" / f"pages-{name}.secret"):
            if path.exists():
                report.add(_TRACE, path, f"of {domain} is there still")


def _check_files(home: Path, report: FsckReport, repair: bool) -> None:
    """That no database file has bytes that nothing owns."""
    from store.dead_space import remains
    from store.sqlite import Database

    found = [*(home / "rooms").glob("*.sqlite"), *(home / "pages").glob("*.db")]
    for path in sorted(found):
        with _noting(report, path):
            left = sum(each.bytes for each in remains(path))
            if left and repair:
                from store.pages.index import MIGRATIONS as PAGES
                from store.schema import MIGRATIONS

                own = PAGES if path.parent.name == "pages" else MIGRATIONS
                with Database(path, migrations=own) as database:
                    database.scrub()
                done = sum(each.bytes for each in remains(path))
                action = "repaired" if not done else "reported"
                report.add(
                    "dead space", path, f"{left} bytes that no row owned, or in its log", action
                )
            elif left:
                what = f"{left} bytes that no row owns, or in its log: --repair writes it anew"
                report.add("dead space", path, what)


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
        with _noting(report, path):
            tables = SqliteTables(Database(path))
    try:
        with _noting(report, path):
            yield tables
    finally:
        if tables is not None:
            tables.close()


@contextmanager
def _noting(report: FsckReport, path: Path) -> Iterator[None]:
    try:
        yield
    except (HuginnError, OSError) as error:
        report.add("unreadable", path, str(error))
