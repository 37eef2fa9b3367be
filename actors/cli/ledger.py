"""`huginn ledger`: what was asked for by whom, and what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEDGERS = "/huginn/v1/ledgers"
_COLUMNS = ("principal", "answers", "prompt_tokens", "answer_tokens", "derivations")


@click.command()
@verb
@click.option("--physical", is_flag=True, help="What it took, by profile. For the operator.")
def ledger(asked: Asked, physical: bool) -> None:
    """Show what each principal asked for: the same whatever was warm.

    A key that does not administer is shown its own line.
    """
    from actors.cli.client import connect

    rows = connect(asked).get(f"{_LEDGERS}/{'physical' if physical else 'logical'}")["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        if physical:
            return table(
                ("profile", "what", "used"),
                [
                    [row["profile_id"], name, row[name]]
                    for row in rows
                    for name in row
                    if name not in ("profile_id", "room")
                ],
            )
        return table(_COLUMNS, [[row[name] for name in _COLUMNS] for row in rows])

    asked.show(rows, people)
