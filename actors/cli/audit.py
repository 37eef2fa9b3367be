"""`huginn audit`: what was granted, refused, revoked and erased. Needs the operator's key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.cli.client import Client
    from store.tables import LogEntry, LogHead

_AUDIT = "/huginn/v1/audit"
_PAGE = 1000
_NS_PER_S = 10**9
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@click.group()
def audit() -> None:
    """Show and verify the audit log."""


@audit.command()
@verb
@click.option("-n", "count", type=click.IntRange(1, _PAGE), default=20, show_default=True)
def tail(asked: Asked, *, count: int) -> None:
    """Show the last entries."""
    from actors.cli.client import connect

    page = connect(asked).get(f"{_AUDIT}?limit={count}")

    def people() -> RenderableType:
        from actors.cli.output import table

        rows = [[row["seq"], *_told(row["entry"])] for row in page["data"]]
        return table(("entry", "time (UTC)", "act", "subject", "what"), rows)

    asked.show(page, people)


@audit.command()
@verb
@click.option("--head", help="SEQ:DIGEST of an earlier time: the log has to run through it.")
def verify(asked: Asked, *, head: str | None) -> None:
    """Follow the chain through every entry, and print where it ends.

    Keep that elsewhere and give it to the next check: then a log that was rewritten shows, too.
    """
    from actors.cli.client import connect
    from protocol.errors import CorruptObject
    from store.tables import verify_chain

    trusted = _head(head)
    try:
        found = verify_chain("audit", _entries(connect(asked)), trusted)
    except CorruptObject as error:
        raise Failure(error.message, code="audit_broken") from error
    end = f"{found.seq}:{found.digest.hex()}"
    asked.show(
        {"entries": found.seq, "head": end},
        lambda: f"the audit log holds: {found.seq} entries, head {end}",
    )


def _head(given: str | None) -> LogHead | None:
    from store.tables import LogHead

    if given is None:
        return None
    parts = _HEAD.fullmatch(given)
    if parts is None:
        raise Failure("--head is what `huginn audit verify` printed: SEQ:DIGEST", code="usage")
    return LogHead(int(parts[1]), bytes.fromhex(parts[2]))


def _entries(client: Client) -> Iterator[LogEntry]:
    """Every entry, in order, as the service gives them. What is decoded is not looked at."""
    from store.tables import LogEntry

    after = 0
    while True:
        rows = client.get(f"{_AUDIT}?limit={_PAGE}&after={after}")["data"]
        for row in rows:
            yield LogEntry(
                seq=row["seq"],
                previous=bytes.fromhex(row["previous"]),
                digest=bytes.fromhex(row["digest"]),
                body=bytes.fromhex(row["body"]),
            )
        if len(rows) < _PAGE:
            return
        after = rows[-1]["seq"]


def _told(entry: Json) -> tuple[str, ...]:
    """Time, act, subject and the rest of one entry, for people."""
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(entry["at_ns"] / _NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return at, entry["act"], entry["subject"], _rest(entry)


def _rest(entry: dict[str, Any]) -> str:
    if entry["act"] == "refuse":
        told = [f"{each['step']} ({each['op']})" for each in entry["refusals"]]
        counted = [f"{count} x {step}" for step, count in entry["counted"].items()]
        return ", ".join(told + counted)
    known = ("act", "subject", "at_ns")
    return ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in entry.items()
        if name not in known
    )
