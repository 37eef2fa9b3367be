"""`huginn key handle`, `attenuate`, `handles` and `take-back`: less than a key, for somebody else.

A handle can be made without the service: the API key derives the key that signs. What is made so is
shown in place of an API key, does what it says until it ends, and can be taken back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from protocol.caveats import Caveat

_CAPABILITIES = "/huginn/v1/capabilities"
_NONCE_BYTES = 16


@click.command("handle")
@verb
def own_handle(asked: Asked) -> None:
    """Show the handle of the key in use: what `attenuate` makes less of. It is no secret."""
    from actors.cli.client import connect

    own = connect(asked).get(f"{_CAPABILITIES}/own")
    asked.show(own, lambda: f"{own['handle']}\n{own['gateway_key']}")


@click.command("attenuate")
@verb
@click.argument("file", type=click.File("r", encoding="ascii"))
@click.option("--right", "rights", multiple=True, help="Only these rights; repeatable.")
@click.option("--namespace", help="Only there and below.")
@click.option("--service", "services", multiple=True, help="Only these rooms; repeatable.")
@click.option("--operation", "operations", multiple=True, help="Only these; repeatable.")
@click.option("--profile", "profiles", multiple=True, help="Only these; repeatable.")
@click.option("--audience", help="For this public key (hexadecimal) in place of the gateway's.")
@click.option("--lifetime-s", type=click.IntRange(min=1), default=3600, show_default=True)
def attenuate(asked: Asked, *, file: Any, **narrowed: Any) -> None:
    """Make a handle that does less, offline. FILE is what `huginn key handle` printed.

    The key in use signs it: it has to be the one that FILE is of. Keep what is printed as you keep
    a key: whoever shows it acts for you as far as it goes. `huginn key take-back` ends it.
    """
    from protocol.errors import CapabilityError, RecordError
    from protocol.handle_text import encode_handle

    try:
        chain = _attenuated(asked, file.read().split(), narrowed)
    except (CapabilityError, RecordError, ValueError) as error:
        raise Failure(f"no such handle can be made: {error}", code="handle") from error
    handle = encode_handle(chain)
    asked.show({"handle": handle}, lambda: handle)


@click.command("handles")
@verb
def list_handles(asked: Asked) -> None:
    """List the handles on record below the key in use."""
    from actors.cli.client import connect

    rows = connect(asked).get(_CAPABILITIES)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("id", "resource", "revoked")
        told = [[*(row[name] for name in columns), ", ".join(row["rights"])] for row in rows]
        return table((*columns, "rights"), told)

    asked.show(rows, people)


@click.command("take-back")
@verb
@click.argument("handle")
def take_back(asked: Asked, handle: str) -> None:
    """Revoke HANDLE, an id of `huginn key handles` or the handle itself, and all below it."""
    from actors.cli.client import connect, segment
    from actors.cli.keys import not_told_yet
    from protocol.handle_text import HANDLE_PREFIX

    client = connect(asked)
    if handle.startswith(HANDLE_PREFIX):
        done = client.post(f"{_CAPABILITIES}/revocations", {"handle": handle})
    else:
        done = client.delete(f"{_CAPABILITIES}/{segment(handle)}")
    asked.show(done, lambda: "taken back" + not_told_yet(done))


def _attenuated(asked: Asked, given: list[str], narrowed: Json) -> tuple[bytes, ...]:
    """The chain; raises as `protocol.capability.attenuate` does."""
    import time

    from actors.cli.client import own_key
    from protocol.capability import attenuate as narrow
    from protocol.handle_text import decode_handle
    from protocol.resource import Resource, ResourceKind, Right
    from protocol.signing import Signer, principal_seed

    audience = narrowed["audience"] or (given[1] if len(given) > 1 else None)
    if not given or audience is None:
        raise Failure(
            "FILE holds a handle and the gateway's key, as `huginn key handle` prints them; or "
            "name a key with --audience",
            code="handle",
        )
    path = narrowed["namespace"]
    return narrow(
        decode_handle(given[0]),
        Signer(principal_seed(own_key(asked))),
        audience=bytes.fromhex(audience),
        nonce=os.urandom(_NONCE_BYTES),
        resource=None if path is None else Resource(kind=ResourceKind.NAMESPACE, name=path),
        rights=[Right(name) for name in narrowed["rights"]] or None,
        caveats=_caveats(narrowed),
        exp_ns=time.time_ns() + narrowed["lifetime_s"] * 10**9,
    )


def _caveats(narrowed: Json) -> list[Caveat]:
    from protocol.caveats import OperationCaveat, ProfileCaveat, ServiceCaveat

    kinds: list[tuple[Any, str]] = [
        (ServiceCaveat, "services"),
        (OperationCaveat, "operations"),
        (ProfileCaveat, "profiles"),
    ]
    return [
        kind(names=tuple(sorted(set(narrowed[name])))) for kind, name in kinds if narrowed[name]
    ]
