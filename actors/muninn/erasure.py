"""Erasing a domain from the memo: every table and log that has its stem, and its header.

Both generations of the index go, and every generation of the log, also one that was put aside as
damaged or that a compaction left unfinished: they are found by name, whatever the header says.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.muninn.evidence import Kept, domain_stem
from actors.muninn.index import GENERATIONS, MEMO, Index
from actors.muninn.ledger import drop_account
from protocol.record import decode_record
from store.tables import Change, Delete, Drop, Tables


def erase_domains(
    tables: Tables, domains: Sequence[str], principals: Sequence[bytes]
) -> dict[str, int]:
    """Erase `domains`, and the accounts of `principals`; blocks until nothing of them is on disk.
    Raises StoreFault."""
    rows: list[Change] = []
    for domain in domains:
        for generation in range(GENERATIONS):
            rows += Index(tables, domain, generation).clear()
        rows.append(Delete(MEMO, domain.encode("utf-8")))
    rows += [drop_account(principal) for principal in principals]
    stems = tuple(f"evidence-{domain_stem(domain)}-" for domain in domains)
    logs: list[Change] = [Drop(name) for name in tables.logs() if name.startswith(stems)]
    done = tables.apply([*rows, *logs])
    tables.scrub()
    return {"rows": sum(done[: len(rows)]), "evidence": sum(done[len(rows) :])}


def traces(tables: Tables, domains: Sequence[str], principals: Sequence[bytes]) -> list[str]:
    """What of them is there still, by where it lies; nothing, once they were erased."""
    found: list[str] = []
    for domain in domains:
        indexes = [Index(tables, domain, generation) for generation in range(GENERATIONS)]
        held = [table for each in indexes for table in (each.guards, each.rows, each.suspects)]
        found += [f"table {table.name}" for table in held if table.count()]
        if tables.keyed(MEMO).get(domain.encode("utf-8")) is not None:
            found.append(f"the memo's header of {domain}")
        stem = f"evidence-{domain_stem(domain)}-"
        found += [f"log {name}" for name in tables.logs() if name.startswith(stem)]
    accounts = tables.keyed(drop_account(b"-").table)
    found += [f"the account of {key.hex()}" for key in principals if accounts.get(key) is not None]
    return found


def older(tables: Tables, domains: Sequence[str], asked_ns: int) -> list[str]:
    """The evidence logs of `domains`, which somebody has, that have entries of before `asked_ns`
    (Unix time); none, once they were erased then."""
    stems = tuple(f"evidence-{domain_stem(domain)}-" for domain in domains)
    return [
        f"log {name}, older than the erasure,"
        for name in tables.logs()
        if name.startswith(stems)
        and any(_is_older(entry.body, asked_ns) for entry in tables.log(name).entries())
    ]


def _is_older(body: bytes, asked_ns: int) -> bool:
    at_ns = decode_record(Kept, body).at_ns
    return at_ns is not None and at_ns < asked_ns
