"""`huginn erase` and `huginn retention`: what is forgotten, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

_ERASURES: Final = "/huginn/v1/erasures"
_RETENTION: Final = "/huginn/v1/retention"
# Files are written anew: that takes as long as writing all that is kept.
_SECONDS_MAX: Final = 3600.0
_IMMEDIATE: Final = "immediate"


@click.group()
def erase() -> None:
    """Erase an object, a namespace, a principal or a domain, for good."""


_yes = click.option("--yes", is_flag=True, help="It cannot be undone: say that you mean it.")


@erase.command()
@verb
@click.argument("name")
@_yes
def domain(asked: Asked, name: str, yes: bool) -> None:
    """Erase the domain NAME: its principals, what is theirs alone, all that was computed."""
    _erase(asked, "domain", name, None, yes)


@erase.command()
@verb
@click.argument("name")
@_yes
def principal(asked: Asked, name: str, yes: bool) -> None:
    """Erase the principal NAME, and what nobody else can see. It is revoked."""
    _erase(asked, "principal", name, None, yes)


@erase.command()
@verb
@click.argument("path")
@_yes
def namespace(asked: Asked, path: str, yes: bool) -> None:
    """Erase all that is in PATH and below: objects, sessions, sources."""
    _erase(asked, "namespace", path, None, yes)


@erase.command(name="object")
@verb
@click.argument("id")
@click.option("--namespace", "path", help="From where; by default where you work.")
@_yes
def erase_object(asked: Asked, id: str, path: str | None, yes: bool) -> None:
    """Erase the object ID, and the sessions that name it."""
    _erase(asked, "object", id, path, yes)


@erase.command()
@verb
def ls(asked: Asked) -> None:
    """List erasures, also those that retention asks for."""
    from actors.cli.client import connect

    rows = connect(asked).get(_ERASURES)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("id", "target", "name", "cause", "state", "waits")
        return table(columns, [[str(row[name] or "") for name in columns] for row in rows])

    asked.show(rows, people)


@erase.command()
@verb
@click.argument("id")
def show(asked: Asked, id: str) -> None:
    """Show one erasure: which rooms have done it, and what went."""
    from actors.cli.client import connect, segment

    row = connect(asked).get(f"{_ERASURES}/{segment(id)}")
    asked.show(row, lambda: _told(row))


@click.group()
def retention() -> None:
    """How long what was computed is kept when nobody in its domain has authority any more."""


@retention.command(name="ls")
@verb
def list_policies(asked: Asked) -> None:
    """List what was set; the line '*' holds for all other domains."""
    from actors.cli.client import connect

    found = connect(asked).get(_RETENTION)
    rows = [found["standard"], *found["data"]]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("domain", "policy", "seconds")
        return table(columns, [[str(row[name]) for name in columns] for row in rows])

    asked.show(rows, people)


@retention.command(name="set")
@verb
@click.argument("domain_name", metavar="DOMAIN")
@click.argument("seconds")
def set_policy(asked: Asked, domain_name: str, seconds: str) -> None:
    """Keep it for SECONDS, or not at all: `immediate`."""
    from actors.cli.client import connect, segment

    body: Json = {"policy": _IMMEDIATE}
    if seconds != _IMMEDIATE:
        if not seconds.isascii() or not seconds.isdecimal():
            raise click.UsageError(f"SECONDS is a number or '{_IMMEDIATE}', not {seconds!r:.40}")
        body = {"policy": "bounded", "seconds": int(seconds)}
    made = connect(asked).put(f"{_RETENTION}/{segment(domain_name)}", body)
    asked.show(made, lambda: f"{made['domain']}: {made['policy']} {made['seconds']} s")


def _erase(asked: Asked, target: str, name: str, path: str | None, yes: bool) -> None:
    from actors.cli.client import connect

    if not yes:
        raise Failure(f"erasing the {target} {name} cannot be undone: say --yes", code="unsure")
    body: Json = {"target": target, "name": name, "namespace": path}
    row = connect(asked, seconds_max=_SECONDS_MAX).post(_ERASURES, body)
    asked.show(row, lambda: _told(row))


def _told(row: Json) -> str:
    if row["state"] == "open":
        return f"{row['id']} waits: {row['waits'] or 'it is not due yet'} (huginn erase show)"
    went = "; ".join(
        f"{room} {', '.join(f'{count} {what}' for what, count in counts.items() if count)}"
        for room, counts in row["rooms"].items()
        if any(counts.values())
    )
    return f"{row['id']} is done: {went or 'nothing was there'}"
