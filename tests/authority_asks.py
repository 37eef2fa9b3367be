"""What tests ask the authority room for as who operates, and its audit log."""

from __future__ import annotations

from actors.gateway.caller import Caller
from actors.gateway.keys import KeyHolder
from protocol import cbor
from protocol.capability import attenuate
from protocol.messages import Empty
from protocol.messages import authority as messages
from protocol.resource import Resource, ResourceKind
from protocol.signing import Signer
from tests.rooms import Installation, Principal

# Whom the tests enroll, or give a part to administer.
CAROL = Signer(b"\x21" * 32)


async def enroll(by: Principal, ask: messages.Enroll) -> messages.Enrolled:
    """Enroll somebody, as one who administers."""
    return await by.caller.ask("authority", "enroll", ask, messages.Enrolled, administer=True)


async def revoke(by: Principal, name: str) -> None:
    """Revoke one of that name, as one who administers."""
    ask = messages.Revoke(name=name)
    await by.caller.ask("authority", "revoke", ask, Empty, administer=True)


async def epoch(by: Principal) -> int:
    """Only who operates is told."""
    found = await by.caller.ask(
        "authority", "current", Empty(), messages.Revocations, administer=True
    )
    return found.epoch


async def listed(by: Principal) -> list[messages.PrincipalRow]:
    """All that `by` is shown, who administers."""
    found = await by.caller.ask(
        "authority", "principals", Empty(), messages.Principals, administer=True
    )
    return found.principals


def narrowed(house: Installation, operator: Principal, path: str) -> Caller:
    """One who administers `path` alone, by the operator's own word."""
    assert operator.row.admin_chain is not None
    chain = attenuate(
        operator.row.admin_chain,
        operator.signer,
        audience=CAROL.public,
        resource=Resource(kind=ResourceKind.NAMESPACE, name=path),
        nonce=house.entropy.draw(16),
    )
    fields = {name: getattr(operator.row, name) for name in operator.row.__struct_fields__}
    row = type(operator.row)(**{**fields, "admin_chain": list(chain)})
    return Caller(KeyHolder(row, CAROL), house.ports, "request")


def audit(house: Installation) -> list[tuple[object, object]]:
    """What was done to whom, from a log that is whole."""
    house.tables.log("audit").verify()
    entries = [cbor.decode(entry.body) for entry in house.tables.log("audit").entries()]
    return [(e["act"], e["subject"]) for e in entries if isinstance(e, dict)]
