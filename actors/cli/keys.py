"""`huginn key`: who may come in. Needs the operator's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

_KEYS = "/huginn/v1/keys"


@click.group()
def key() -> None:
    """Make, list and revoke API keys."""


@key.command()
@verb
@click.option("--principal", required=True, help="Whose key it is: a-z 0-9 . _ -")
@click.option("--namespace", help="Where it works; by default home/PRINCIPAL.")
@click.option("--domain", help="With whom it shares computation; by default nobody.")
@click.option("--right", "rights", multiple=True, help="In place of the usual rights; repeatable.")
@click.option("--lifetime-s", type=click.IntRange(min=1), help="Seconds; by default 366 days.")
def new(
    asked: Asked,
    *,
    principal: str,
    namespace: str | None,
    domain: str | None,
    rights: tuple[str, ...],
    lifetime_s: int | None,
) -> None:
    """Make a principal and its key. The key is shown this once."""
    from actors.cli.client import connect

    body: Json = {
        "principal": principal,
        "namespace": namespace,
        "domain": domain,
        "rights": list(rights) or None,
        "lifetime_s": lifetime_s,
    }
    made = connect(asked).post(_KEYS, body)

    def people() -> RenderableType:
        from actors.cli.output import facts

        rows = ("key", "principal", "namespace", "domain")
        shown = [(name, made[name]) for name in rows]
        return facts([*shown, ("rights", ", ".join(made["rights"]))])

    asked.show(made, people)


@key.command()
@verb
def ls(asked: Asked) -> None:
    """List principals; keys are kept as hashes and cannot be shown."""
    from actors.cli.client import connect

    rows = connect(asked).get(_KEYS)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("principal", "namespace", "domain", "revoked", "rights")
        return table(
            columns,
            [[*(row[name] for name in columns[:-1]), ", ".join(row["rights"])] for row in rows],
        )

    asked.show(rows, people)


@key.command()
@verb
@click.argument("principal")
def revoke(asked: Asked, principal: str) -> None:
    """Revoke a principal: its key stops working at once."""
    from actors.cli.client import connect, segment

    done = connect(asked).delete(f"{_KEYS}/{segment(principal)}")
    told = f"revoked {principal}: {done['keys_removed']} key forgotten"
    asked.show(done, lambda: told + not_told_yet(done))


def not_told_yet(done: Json) -> str:
    """What a person is told of rooms that a revocation has yet to reach."""
    rooms = ", ".join(done["rooms_waiting"])
    return f"\nNOT YET in force in: {rooms}. It is told until it takes it." if rooms else ""
