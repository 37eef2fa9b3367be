"""`huginn matrix`: the account that a service answers with on a Matrix server."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.gateway.transports.matrix_account import Account


@click.group()
def matrix() -> None:
    """Answer in Matrix rooms: log in, log out, show the account."""


@matrix.command()
@verb
@click.option("--url", required=True, help="The homeserver's client API: https://matrix.example")
@click.option("--user", required=True, help="The account to answer with: @huginn:example")
@click.option("--allow", multiple=True, required=True, help="A user to answer; repeatable.")
@click.option(
    "--key-file",
    default="operator.key",
    help="File in the data directory with the API key to answer with.",
)
def login(asked: Asked, *, url: str, user: str, allow: tuple[str, ...], key_file: str) -> None:
    """Log in and keep the account; the next start of the service answers there.

    The password is asked for on a terminal, and is one line of standard input otherwise. Anybody
    on the --allow list asks with the rights of the API key, and nobody else is answered.
    """
    from actors.gateway.transports.matrix_account import write_account
    from actors.gateway.transports.matrix_login import log_in

    home = asked.config().home_path
    if not (home / key_file).is_file():
        raise Failure(
            f"{home / key_file} is not there: start the service once, or put a key there",
            code="no_key",
        )
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    account = asyncio.run(log_in(url, user, password, allow, key_file))
    write_account(home, account)
    shown: Json = {"user": account.user, "url": account.url, "allow": list(account.allow)}
    asked.show(shown, lambda: f"{account.user} answers {', '.join(allow)} from the next start on")


@matrix.command()
@verb
def show(asked: Asked) -> None:
    """Show the account, without what is secret of it."""
    account = _account(asked)
    shown: Json = {
        "user": account.user,
        "url": account.url,
        "allow": list(account.allow),
        "key_file": account.key_file,
        "persona": account.persona,
    }

    def people() -> RenderableType:
        from actors.cli.output import facts

        return facts([(name, str(value)) for name, value in shown.items()])

    asked.show(shown, people)


@matrix.command()
@verb
def logout(asked: Asked) -> None:
    """Log out and forget the account; a running service answers there until it is stopped."""
    from actors.gateway.transports.matrix_account import FILE
    from actors.gateway.transports.matrix_login import log_out

    account = _account(asked)
    (asked.config().home_path / FILE).unlink()
    asyncio.run(log_out(account))
    asked.show({"user": account.user}, lambda: f"{account.user} answers no longer")


def _account(asked: Asked) -> Account:
    from actors.gateway.transports.matrix_account import FILE, read_account

    home = asked.config().home_path
    account = read_account(home)
    if account is None:
        raise Failure(f"{home / FILE} is not there: see `huginn matrix login`", code="no_account")
    return account
