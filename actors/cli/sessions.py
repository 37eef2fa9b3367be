"""`huginn session`: conversations that the service keeps, and what they were told of events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

_SESSIONS = "/huginn/v1/sessions"


@click.group()
def session() -> None:
    """List, show and forget sessions, and see what one would be told."""


@session.command()
@verb
def ls(asked: Asked) -> None:
    """List the sessions that this key may see."""
    from actors.cli.client import connect

    rows = connect(asked).get(_SESSIONS)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("session", "persona", "scope", "place", "turns", "last used")
        return table(columns, [_row(row) for row in rows])

    asked.show(rows, people)


@session.command()
@verb
@click.argument("session")
def show(asked: Asked, session: str) -> None:
    """Show SESSION and its turns."""
    from actors.cli.client import connect, segment

    found = connect(asked).get(f"{_SESSIONS}/{segment(session)}")
    asked.show(found, lambda: _session_people(found))


@session.command()
@verb
@click.argument("session")
@click.option("--parent", help="As of this turn, in place of the newest.")
def events(asked: Asked, session: str, parent: str | None) -> None:
    """Print what a turn of SESSION that began now would be told. Moves nothing."""
    from actors.cli.client import connect, segment

    path = f"{_SESSIONS}/{segment(session)}/prompt-context"
    found = connect(asked).get(path if parent is None else f"{path}?parent={segment(parent)}")
    asked.show(found, lambda: _told(found))


@session.command()
@verb
@click.argument("session")
def rm(asked: Asked, session: str) -> None:
    """Forget SESSION: its turns and its marks."""
    from actors.cli.client import connect, segment

    done = connect(asked).delete(f"{_SESSIONS}/{segment(session)}")
    asked.show(done, lambda: f"forgot session {session}")


def turns_people(turns: list[Json]) -> RenderableType:
    """The turns of a session for people: each by its number, and which one it goes on from."""
    from actors.cli.output import table

    id_to_number = {turn["id"]: turn["number"] for turn in turns}
    columns = ("turn", "after", "state", "events", "response", "context")
    return table(
        columns,
        [
            (
                turn["number"],
                id_to_number.get(turn["parent"]),
                turn["state"],
                turn["injected"],
                turn["response"],
                turn["context_id"],
            )
            for turn in turns
        ],
    )


def _session_people(found: Any) -> RenderableType:
    from rich.console import Group

    from actors.cli.output import facts

    names = ("id", "persona", "place", "injected", "gaps", "dropped")
    shown = [(name, found[name]) for name in names]
    marks = ", ".join(f"{source} {seq}" for source, seq in found["marks"].items())
    pairs = [*shown, ("scope", _scope(found)), ("marks", marks or None)]
    return Group(facts(pairs), "", turns_people(found["turns"]))


def _told(found: Any) -> str:
    from actors.cli.output import printable

    return printable(found["text"]) or "nothing new"


def _row(row: Json) -> tuple[object, ...]:
    used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["used_at"]))
    names = ("id", "persona")
    return (*(row[name] for name in names), _scope(row), row["place"], row["turns_count"], used)


def _scope(row: Json) -> str:
    scope = row["scope"]
    return scope if isinstance(scope, str) else ", ".join(scope)
