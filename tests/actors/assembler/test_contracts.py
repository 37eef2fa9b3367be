"""Contracts: what a profile brings, and that only what the root signed counts."""

from __future__ import annotations

import msgspec
import pytest

from actors.assembler.contracts import ProfileContracts, Registry, contract_id
from protocol.assembly import (
    REGISTRATION_CONTEXT,
    SEQUENCE_CONTRACT,
    TEXT_ONLY,
    BudgetPolicy,
    ContextAssembly,
)
from protocol.errors import AuthorityError, ContentError
from protocol.ids import ContractId, SequenceId, TransformId
from protocol.messages.authority import Registration, RegistrationPayload
from protocol.record import Identified, encode_record, object_id
from protocol.signing import Signer, pack_signed
from protocol.transform import REFERENCE, REFERENCE_ID
from tests.rooms import profile

ROOT, OTHER = Signer(b"\x01" * 32), Signer(b"\x02" * 32)
POLICY = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=100, keep_turns=1)
SEQUENCE = SequenceId.of(b"some sequence")
RAVEN: ProfileContracts = profile()


def test_fields_name_every_contract_by_its_id() -> None:
    grammar = RAVEN.grammars["gemma3-transcript"]
    fields = RAVEN.fields(grammar, POLICY)
    expected: dict[str, Identified] = {
        "model_contract": RAVEN.model,
        "tokenizer_contract": grammar.tokenizer.contract,
        "conversation_template": grammar.template,
        "separator_grammar": grammar.separator,
        "budget_policy": POLICY,
        "tool_encoding": grammar.tools,
        "media_encoding": TEXT_ONLY,
        "reference_transform": REFERENCE,
    }
    assert {name: object_id(record) for name, record in expected.items()} == {
        name: getattr(fields, name) for name in fields.__struct_fields__
    }
    assert fields.reference_transform == REFERENCE_ID
    assert contract_id(POLICY) == object_id(POLICY)


def test_everything_that_may_be_named_is_brought_to_registration() -> None:
    brought = {object_id(record) for record in RAVEN.records()}
    for grammar in RAVEN.grammars.values():
        fields = RAVEN.fields(grammar, POLICY)
        named = {getattr(fields, name) for name in fields.__struct_fields__}
        assert named - brought == {object_id(POLICY)}
    assert object_id(SEQUENCE_CONTRACT) in brought


def test_a_grammar_by_name() -> None:
    assert RAVEN.grammar_named(None) is RAVEN.grammar
    assert RAVEN.grammar_named("gemma3-transcript").name == "gemma3-transcript"
    with pytest.raises(ContentError, match="there are gemma3-it, gemma3-transcript"):
        RAVEN.grammar_named("llama")


def test_the_grammar_of_an_assembly_is_found_again() -> None:
    for grammar in RAVEN.grammars.values():
        assert RAVEN.grammar_of(RAVEN.fields(grammar, POLICY).over(SEQUENCE)) is grammar


@pytest.mark.req("ASM-4")
@pytest.mark.parametrize(
    "field",
    [
        name
        for name in ContextAssembly.__struct_fields__
        if name not in ("format_version", "sequence", "budget_policy", "media_encoding")
    ],
)
def test_under_any_other_contract_there_is_no_grammar(field: str) -> None:
    assembly = RAVEN.fields(RAVEN.grammar, POLICY).over(SEQUENCE)
    other: object = (TransformId if field == "reference_transform" else ContractId)(b"o" * 32)
    assert RAVEN.grammar_of(msgspec.structs.replace(assembly, **{field: other})) is None


def registration(
    record: Identified, signer: Signer = ROOT, context: bytes = REGISTRATION_CONTEXT
) -> Registration:
    payload = RegistrationPayload(v=1, id=str(object_id(record)), epoch=0, registered_ns=1)
    return Registration(signed=pack_signed(signer, context, encode_record(payload)))


@pytest.mark.req("ASM-9")
def test_what_the_root_signed_is_registered() -> None:
    registry = Registry(frozenset((ROOT.public, OTHER.public)))
    assert object_id(POLICY) not in registry
    registry.admit(POLICY, registration(POLICY))
    registry.admit(TEXT_ONLY, registration(TEXT_ONLY, OTHER))
    assert object_id(POLICY) in registry
    assert object_id(TEXT_ONLY) in registry
    assert object_id(REFERENCE) not in registry


FORGED = {
    "signed by another": registration(POLICY, OTHER),
    "signed for another purpose": registration(POLICY, context=b"huginn.cap/1\0"),
    "of another contract": registration(TEXT_ONLY),
    "changed": Registration(signed=registration(POLICY).signed[:-1] + b"\x00"),
    "nothing": Registration(signed=b""),
    "no signed record": Registration(signed=encode_record(POLICY)),
    "no payload": Registration(signed=pack_signed(ROOT, REGISTRATION_CONTEXT, b"\xff")),
    "another payload": Registration(
        signed=pack_signed(ROOT, REGISTRATION_CONTEXT, encode_record(POLICY))
    ),
    "too long": Registration(
        signed=pack_signed(ROOT, REGISTRATION_CONTEXT, b"x" * 5000),
    ),
}


@pytest.mark.req("ASM-9")
@pytest.mark.parametrize("name", FORGED)
def test_what_the_root_did_not_sign_is_not(name: str) -> None:
    registry = Registry(frozenset((ROOT.public,)))
    with pytest.raises(AuthorityError) as caught:
        registry.admit(POLICY, FORGED[name])
    assert caught.value.step == "registration"
    assert object_id(POLICY) not in registry
