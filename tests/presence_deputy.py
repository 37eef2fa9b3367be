"""A stranger who administers a part of the installation, and what it asks there about others.

An operator may give out the handle that administers for a namespace alone. Its holder grants,
revokes, erases and operates there. What is about all, or about somebody outside, is not for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from actors.gateway.keys import ApiKeys
from protocol.assembly import BudgetPolicy
from protocol.blocks import Role
from protocol.capability import attenuate
from protocol.caveats import DomainCaveat
from protocol.ids import BlockId
from protocol.messages import Empty
from protocol.messages.authority import AskAudit, Refused, RegisterContract, Revocations, Revoke
from protocol.messages.erasure import AskErasure, Erase, RequestErasure, Retention
from protocol.messages.muninn import DrawSample, Rebuild, Report, Verified
from protocol.messages.ropes import Publish, Withdraw
from protocol.record import Record, encode_record, object_id
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.events_rooms import said
from tests.presence_house import ALL_RIGHTS, CONTEXT_TOKENS, TEXTS, House
from tests.presence_messages import OTHER, Leaked, Message
from tests.rooms import enrolment

DEPUTY = "carol"
_RIGHTS = (Right.GRANT, Right.REVOKE, Right.ERASE, Right.OPERATE)
_ROOMS = ("authority", "ropes", "assembler", "events", "muninn", "worker", "gateway")


async def deputize(made: House) -> None:
    """Enroll the deputy, with a namespace and a domain of its own, and let the operator give it the
    handle that administers there."""
    await made.enroll(DEPUTY, ALL_RIGHTS, telemetry=None)
    person, operator = made.people[DEPUTY], made.people["operator"].principal
    assert operator.row.admin_chain is not None
    part = attenuate(
        operator.row.admin_chain,
        operator.signer,
        audience=person.principal.signer.public,
        nonce=b"\x02" * 16,
        resource=Resource(kind=ResourceKind.NAMESPACE, name=DEPUTY),
        rights=_RIGHTS,
        caveats=[DomainCaveat(name=DEPUTY)],
    )
    row = structs.replace(person.principal.row, admin_chain=list(part))
    ApiKeys(made.keys).add(person.key, row)
    made.gateway.keys = ApiKeys(made.keys)
    made.people[DEPUTY] = replace(person, principal=replace(person.principal, row=row))


def administering(leaked: Leaked) -> Iterator[Message]:
    """What the deputy asks under the handle that administers."""
    for room, op, record in (*_of_all(), *_of_others(leaked)):
        yield Message(room, op, record, administer=True)
    for room, op, record in _of_its_own():
        yield Message(room, op, record, foreign=False, administer=True)


def _of_all() -> Iterator[tuple[str, str, Record]]:
    """What is about the whole installation."""
    for room in _ROOMS:
        yield room, "revocations", Revocations(epoch=10**6, revoked=[])
    for op, record in (
        ("current", Empty()),
        ("refused", Refused(refusals=[], counted={})),
        ("audit", AskAudit(limit=100, after=0)),
        ("set_retention", Retention(domain=OTHER, policy="immediate", seconds=0)),
        ("retentions", Empty()),
    ):
        yield "authority", op, record
    # One that her requests are assembled under, and one that nobody's are.
    for tokens_max in (CONTEXT_TOKENS, 7):
        contract = BudgetPolicy(
            v=1, kind="budget", policy="refuse", tokens_max=tokens_max, keep_turns=0
        )
        registered = RegisterContract(id=str(object_id(contract)), body=encode_record(contract))
        yield "authority", "register", registered
    for op in ("stats", "charges", "use", "publications"):
        yield "worker", op, Empty()
    for room in ("muninn", "events"):
        yield room, "status", Empty()
    yield "muninn", "report", Report(entries=[])
    yield "muninn", "verified", Verified(checks=[])
    for domain in (None, OTHER, DEPUTY):
        yield "muninn", "sample", DrawSample(count=10, seed=b"seed", domain=domain)
        yield "muninn", "rebuild", Rebuild(disown=True, domain=domain)


def _of_others(leaked: Leaked) -> Iterator[tuple[str, str, Record]]:
    """What names alice, or what is hers."""
    key = Signer(b"\x32" * 32)
    elsewhere = {"namespace": f"{DEPUTY}/new", "domain": f"{DEPUTY}-new"}
    for name, changes in (
        (OTHER, {}),
        (OTHER, elsewhere),
        ("new", elsewhere | {"namespace": OTHER}),
        ("new", elsewhere | {"namespace": f"{OTHER}/inner"}),
        ("new", elsewhere | {"domain": OTHER}),
        ("new", elsewhere | {"telemetry": [OTHER]}),
        ("new", elsewhere | {"administers": True}),
    ):
        ask = enrolment(name, key, **{"rights": ALL_RIGHTS, **changes})
        yield "authority", "enroll", ask
    yield "authority", "revoke", Revoke(name=OTHER)
    gone = Erase(domains=[OTHER], namespaces=[OTHER], spared=[], principals=[], names=[OTHER])
    for room in _ROOMS:
        yield room, "erase", gone
    for erasure in leaked("erasure"):
        yield "authority", "erasure", AskErasure(id=erasure)
    for ask in (
        RequestErasure(target="object", name=leaked.one("block"), namespace=OTHER),
        RequestErasure(target="namespace", name=OTHER),
        RequestErasure(target="namespace", name=f"{OTHER}/gone"),
        RequestErasure(target="domain", name=OTHER),
        RequestErasure(target="domain", name=f"{OTHER}-gone"),
        RequestErasure(target="principal", name=OTHER),
    ):
        yield "authority", "request_erasure", ask
    for block in leaked("block"):
        yield "ropes", "withdraw", Withdraw(block=BlockId.parse(block))
    hers = said(Role.USER, TEXTS[1])
    yield "ropes", "publish", Publish(block=hers.block, content=hers.content)


def _of_its_own() -> Iterator[tuple[str, str, Record]]:
    """What is the deputy's to do."""
    yield "authority", "principals", Empty()
    yield "authority", "erasures", Empty()
    yield "ropes", "publications", Empty()
    old = RequestErasure(target="namespace", name=f"{DEPUTY}/old")
    yield "authority", "request_erasure", old
    yield "authority", "erasures", Empty()
