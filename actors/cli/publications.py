"""`huginn publish`, `publications` and `unpublish`: what all principals share on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

_PUBLICATIONS = "/huginn/v1/publications"
_COLUMNS = ("block_id", "role", "name", "content_bytes")


@click.command()
@verb
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--role",
    type=click.Choice(["system", "user", "assistant"]),
    default="system",
    show_default=True,
    help="Who says it.",
)
@click.option("--name", help="The message's name, if clients send one.")
def publish(asked: Asked, file: Path, role: str, name: str | None) -> None:
    """Publish the text in FILE: conversations that begin with it share its prefix state.

    It is the message that clients send: the same text to the last byte, a line end too. It is not
    shown to anybody who does not send it.
    """
    from actors.cli.client import connect

    try:
        content = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(f"{file} is not UTF-8 at byte {error.start}", code="not_text") from error
    made = connect(asked).post(_PUBLICATIONS, {"role": role, "content": content, "name": name})
    asked.show(made, lambda: f"public: {made['block_id']} ({made['content_bytes']} bytes)")


@click.command()
@verb
def publications(asked: Asked) -> None:
    """List what is public."""
    from actors.cli.client import connect

    rows = connect(asked).get(_PUBLICATIONS)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        return table(_COLUMNS, [[row[name] for name in _COLUMNS] for row in rows])

    asked.show(rows, people)


@click.command()
@verb
@click.argument("block")
def unpublish(asked: Asked, block: str) -> None:
    """Make BLOCK private again; the states that were shared are deleted."""
    from actors.cli.client import connect, segment

    gone = connect(asked).delete(f"{_PUBLICATIONS}/{segment(block)}")
    asked.show(gone, lambda: f"private again: {gone['block_id']}")
