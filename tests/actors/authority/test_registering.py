"""Registering a contract: by signature and epoch, once for ever, and on record with grants."""

from __future__ import annotations

import pytest

from actors.assembler.contracts import Registry
from protocol.assembly import REGISTRATION_CONTEXT, TEXT_ONLY, BudgetPolicy
from protocol.errors import ContentError, CorruptObject, InvocationError
from protocol.messages import authority as messages
from protocol.record import decode_record, encode_record, object_id
from protocol.signing import unpack_signed, verify
from tests.authority_asks import CAROL, audit, enroll, revoke
from tests.rooms import SECOND, Installation, Principal, enrolment

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
