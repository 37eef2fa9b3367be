"""The authority room: granting under a grant, revoking before answering, and registration."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace

from actors.assembler.contracts import Registry
from actors.gateway.caller import Caller
from actors.gateway.keys import KeyHolder
from protocol import cbor
from protocol.assembly import REGISTRATION_CONTEXT, TEXT_ONLY, BudgetPolicy
from protocol.capability import attenuate, decode_link
from protocol.caveats import TelemetryCaveat
from protocol.envelope import Envelope
from protocol.errors import (
    AuthorityError,
    CapabilityError,
    Conflict,
    ContentError,
    CorruptObject,
    InvocationError,
    NotVisible,
    RecordError,
    StoreFault,
)
from protocol.messages import Empty
from protocol.messages import authority as messages
from protocol.messages import ropes as ropes_messages
from protocol.record import decode_record, encode_record, object_id
from protocol.resource import Resource, ResourceKind
from protocol.signing import Signer, unpack_signed, verify
from tests.rooms import SECOND, Installation, Principal, enrolment

CAROL = Signer(b"\x21" * 32)


@pytest.fixture
async def house() -> Installation:
    return await Installation().start()


@pytest.fixture
async def operator(house: Installation) -> Principal:
    return await house.enroll("operator", administers=True)


async def enroll(by: Principal, ask: messages.Enroll) -> messages.Enrolled:
    return await by.caller.ask("authority", "enroll", ask, messages.Enrolled, administer=True)


async def revoke(by: Principal, name: str) -> None:
    ask = messages.Revoke(name=name)
    await by.caller.ask("authority", "revoke", ask, Empty, administer=True)


async def epoch(by: Principal) -> int:
    """Only who operates is told."""
    found = await by.caller.ask(
        "authority", "current", Empty(), messages.Revocations, administer=True
    )
    return found.epoch


async def listed(by: Principal) -> list[messages.PrincipalRow]:
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
    house.tables.log("audit").verify()
    entries = [cbor.decode(entry.body) for entry in house.tables.log("audit").entries()]
    return [(e["act"], e["subject"]) for e in entries if isinstance(e, dict)]


# -- enrolling -------------------------------------------------------------------------------


async def test_the_operator_enrolls_a_principal(house: Installation, operator: Principal) -> None:
    ask = enrolment("carol", CAROL, namespace="team/carol")
    enrolled = await enroll(operator, ask)
    assert await enroll(operator, ask) == enrolled
    with pytest.raises(Conflict):
        await enroll(operator, enrolment("carol", operator.signer))
    assert enrolled.admin_chain is None
    assert audit(house)[-1] == ("grant", "carol")


async def test_nobody_else_does(house: Installation, operator: Principal) -> None:
    alice = await house.enroll("alice")
    ask = enrolment("carol", CAROL)
    with pytest.raises(InvocationError, match="'enroll' needs the right 'grant'"):
        await alice.caller.ask("authority", "enroll", ask, messages.Enrolled)
    with pytest.raises(AuthorityError, match="alice does not administer"):
        await enroll(alice, ask)
    with pytest.raises(InvocationError, match="needs the right 'grant'"):
        await operator.caller.ask("authority", "enroll", ask, messages.Enrolled)
    assert [row.name for row in await listed(operator)] == ["operator", "alice"]


async def test_no_message_makes_one_who_administers(
    house: Installation, operator: Principal
) -> None:
    with pytest.raises(NotVisible):
        await enroll(operator, enrolment("carol", CAROL, administers=True))
    assert [row.name for row in await listed(operator)] == ["operator"]


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize(
    "changes", [{"namespace": "public"}, {"namespace": "public/a"}, {"domain": "public"}]
)
async def test_nobody_is_given_what_is_everybodys(
    house: Installation, operator: Principal, changes: dict[str, str]
) -> None:
    ask = replace(enrolment("carol", CAROL), **changes)
    with pytest.raises(ContentError, match="everybody's: choose other names"):
        await enroll(operator, ask)
    assert [row.name for row in await listed(operator)] == ["operator"]
    await enroll(operator, enrolment("carol", CAROL, namespace="publican"))


@pytest.mark.req("AUT-7")
async def test_telemetry_on_what_is_public_is_granted_by_who_has_it(
    house: Installation, operator: Principal
) -> None:
    ask = enrolment("carol", CAROL, namespace="team/carol", telemetry=["public"])
    made = await enroll(operator, ask)
    caveats = decode_link(made.chain[0]).capability.caveats
    assert TelemetryCaveat(names=("public",)) in caveats
    # One who administers a part has telemetry on no domain.
    part = narrowed(house, operator, "team")
    ask = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora", telemetry=["public"])
    with pytest.raises(NotVisible):
        await part.ask("authority", "enroll", ask, messages.Enrolled, administer=True)


async def test_one_who_administers_a_part_reaches_no_other_part(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    await house.enroll("member", namespace="team/member")
    await house.enroll("teamster")
    part = narrowed(house, operator, "team")
    found = await part.ask("authority", "principals", Empty(), messages.Principals, administer=True)
    assert [row.name for row in found.principals] == ["member"]
    ask = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora")
    await part.ask("authority", "enroll", ask, messages.Enrolled, administer=True)
    for namespace in ("alice", "teamster"):
        beyond = enrolment("eve", Signer(b"\x23" * 32), namespace=namespace)
        with pytest.raises(NotVisible):
            await part.ask("authority", "enroll", beyond, messages.Enrolled, administer=True)
    refusals = []
    for name in ("alice", "teamster", "nobody"):
        with pytest.raises(NotVisible) as caught:
            await part.ask(
                "authority",
                "revoke",
                messages.Revoke(name=name),
                Empty,
                administer=True,
            )
        refusals.append(caught.value.message.replace(name, "…"))
    assert len(set(refusals)) == 1
    assert not any(row.revoked for row in await listed(operator))
    await revoke(operator, "alice")
    told = await part.ask(
        "authority", "revoke", messages.Revoke(name="member"), Empty, administer=True
    )
    # Nothing of alice, who is none of its own.
    assert told == Empty()
    assert {row.name for row in await listed(operator) if row.revoked} == {"alice", "member"}


async def test_one_who_administers_a_part_takes_no_name_and_no_domain_from_another(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    part = narrowed(house, operator, "team")
    mine = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora")
    for taken in (
        # Alice's own key is public: with it she would be moved into the part, and could be revoked.
        enrolment("alice", alice.signer, namespace="team/alice"),
        replace(mine, domain="alice"),
    ):
        with pytest.raises(NotVisible):
            await part.ask("authority", "enroll", taken, messages.Enrolled, administer=True)
    rows = {row.name: row.namespace for row in await listed(operator)}
    assert rows == {"operator": "operator", "alice": "alice"}
    # Who administers all of it may: sharing is granted on purpose.
    await enroll(operator, replace(mine, domain="alice"))


@pytest.mark.req("AUT-3")
async def test_a_list_of_principals_gives_nothing_to_use(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice", rights=["write", "read"])
    rows = await listed(operator)
    assert rows[1] == messages.PrincipalRow(
        name="alice",
        public_key=alice.signer.public,
        namespace="alice",
        domain="alice",
        rights=["read", "write"],
        revoked=False,
    )
    answer = house.post.replies[-1]
    for principal in (alice, operator):
        for chain in (principal.row.chain, principal.row.admin_chain or []):
            assert not any(link in answer for link in chain)


# -- revoking --------------------------------------------------------------------------------


@pytest.mark.req("AUT-4")
async def test_a_revocation_is_durable_then_announced_then_answered(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    order: list[tuple[str, int]] = []

    async def note(answered: Envelope) -> None:
        order.append((f"{answered.room} {answered.op}", len(house.tables.rows("revoked"))))

    house.post.rooms["worker"] = house.post.rooms["ropes"]
    house.post.meanwhile = note
    await revoke(operator, "alice")
    # The worker's place is taken by another room, which refuses; that holds nothing up.
    assert order == [
        ("assembler revocations", 1),
        ("ropes revocations", 1),
        ("worker revocations", 1),
        ("authority revoke", 1),
    ]
    assert audit(house)[-1] == ("revoke", "alice")
    assert await epoch(operator) == 1


@pytest.mark.req("AUT-4")
async def test_a_revocation_is_announced_also_if_its_caller_goes_away(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    announcing, go_on = asyncio.Event(), asyncio.Event()

    async def hold(answered: Envelope) -> None:
        if (answered.room, answered.op) == ("assembler", "revocations"):
            announcing.set()
            await go_on.wait()

    house.post.meanwhile = hold
    asking = asyncio.create_task(revoke(operator, "alice"))
    await announcing.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    go_on.set()
    async with asyncio.timeout(60):
        while not house.post.asked("ropes", "revocations", messages.Revocations):
            await asyncio.sleep(0)
    with pytest.raises(CapabilityError, match="revoked"):
        await alice.caller.ask(
            "ropes", "get", ropes_messages.GetObjects(ids=[]), ropes_messages.Objects
        )


@pytest.mark.req("AUT-4")
async def test_a_room_that_is_down_is_a_warning_and_learns_at_its_start(
    house: Installation, operator: Principal, caplog: pytest.LogCaptureFixture
) -> None:
    alice = await house.enroll("alice")
    house.post.down = {"ropes"}
    with caplog.at_level(logging.WARNING):
        await revoke(operator, "alice")
    told = [record.getMessage() for record in caplog.records]
    assert any("the ropes room was not told of epoch 1" in line for line in told)
    assert any("the worker room was not told" in line for line in told)
    assert not any("the assembler room" in line for line in told)
    house.post.down = set()
    house.clock.now_ns += SECOND
    await house.restart("ropes")
    with pytest.raises(CapabilityError, match="revoked"):
        await alice.caller.ask(
            "ropes", "get", ropes_messages.GetObjects(ids=[]), ropes_messages.Objects
        )


@pytest.mark.req("AUT-4")
async def test_revocations_outlive_the_authority(house: Installation, operator: Principal) -> None:
    alice = await house.enroll("alice", administers=True)
    await revoke(operator, "alice")
    assert await epoch(operator) == 2
    house.clock.now_ns += SECOND
    await house.restart("authority")
    with pytest.raises(CapabilityError, match="revoked"):
        await listed(alice)
    assert [row.revoked for row in await listed(operator)] == [False, True]


@pytest.mark.req("AUT-4")
async def test_one_who_revokes_itself_is_revoked(house: Installation, operator: Principal) -> None:
    await revoke(operator, "operator")
    with pytest.raises(CapabilityError, match="revoked"):
        await listed(operator)


# -- registering -----------------------------------------------------------------------------

POLICY = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=5, keep_turns=1)


async def register(by: Principal, ask: messages.RegisterContract) -> messages.Registration:
    return await by.caller.ask("authority", "register", ask, messages.Registration, administer=True)


@pytest.mark.req("ASM-9")
async def test_a_contract_is_registered_by_signature_and_epoch(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    await revoke(operator, "alice")
    ask = messages.RegisterContract(id=str(object_id(POLICY)), body=encode_record(POLICY))
    registration = await register(operator, ask)
    payload, signature = unpack_signed(registration.signed, size_max=4096)
    assert verify(house.root.public, REGISTRATION_CONTEXT + payload, signature)
    assert decode_record(messages.RegistrationPayload, payload) == messages.RegistrationPayload(
        v=1, id=str(object_id(POLICY)), epoch=1, registered_ns=house.clock.now_ns
    )
    # Once is for ever: the same words again, and one entry in the log.
    house.clock.now_ns += SECOND
    assert await register(operator, ask) == registration
    assert audit(house).count(("register", str(object_id(POLICY)))) == 1
    registry = Registry(frozenset((house.root.public,)))
    registry.admit(POLICY, registration)
    assert object_id(POLICY) in registry


async def test_what_is_not_its_id_is_not_registered(
    house: Installation, operator: Principal
) -> None:
    before = audit(house)
    text = str(object_id(POLICY))
    with pytest.raises(CorruptObject):
        await register(operator, messages.RegisterContract(id=text, body=encode_record(TEXT_ONLY)))
    with pytest.raises(ContentError, match="not an id"):
        await register(operator, messages.RegisterContract(id="budget", body=b""))
    assert audit(house) == before


async def test_a_principal_registers_nothing(house: Installation) -> None:
    alice = await house.enroll("alice")
    ask = messages.RegisterContract(id=str(object_id(POLICY)), body=encode_record(POLICY))
    with pytest.raises(InvocationError, match="needs the right 'operate'"):
        await alice.caller.ask("authority", "register", ask, messages.Registration)


async def test_the_audit_log_holds_grants_revocations_and_registrations(
    house: Installation, operator: Principal
) -> None:
    await enroll(operator, enrolment("carol", CAROL))
    await revoke(operator, "carol")
    ask = messages.RegisterContract(id=str(object_id(POLICY)), body=encode_record(POLICY))
    await register(operator, ask)
    assert audit(house)[-4:] == [
        ("grant", "operator"),
        ("grant", "carol"),
        ("revoke", "carol"),
        ("register", str(object_id(POLICY))),
    ]
    # Before them, what the assembler registered when it started.
    assert {act for act, _ in audit(house)[:-4]} == {"register"}


async def test_a_bad_path_is_refused_as_such(operator: Principal) -> None:
    with pytest.raises(RecordError, match="not a namespace path"):
        await enroll(operator, enrolment("carol", CAROL, namespace="Up/Case"))


async def test_a_drained_authority_has_closed_its_tables(
    house: Installation, operator: Principal
) -> None:
    await house.post.rooms["authority"].drain()
    with pytest.raises(StoreFault, match="closed"):
        await listed(operator)
