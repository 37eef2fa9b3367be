"""A ContextId changes with every part of its assembly, and with nothing else (ASM-1)."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import assembly as module
from protocol import cbor
from protocol.assembly import (
    REGISTRATION_CONTEXT,
    SEQUENCE_CONTRACT,
    SEQUENCE_CONTRACT_ID,
    TEXT_ONLY,
    BudgetPolicy,
    ContextAssembly,
    ContextSequence,
    ModelContract,
    sequence_of,
)
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.capability import CAPABILITY_CONTEXT
from protocol.errors import RecordError
from protocol.grammars import grammar
from protocol.ids import BlockId, ContextId, ContractId, NodeId, ObjectId, SequenceId, TransformId
from protocol.invocation import INVOCATION_CONTEXT
from protocol.messages.ropes import AssemblyFields
from protocol.record import Identified, decode_record, encode_record, object_id
from protocol.rope import Entry, build
from protocol.rope.node import FORMAT
from protocol.transform import REFERENCE_ID
from tests.fake_tokenizer import FakeTokenizer
from tests.records import Sampler

_MODEL = ModelContract(
    v=1,
    kind="model",
    name="m",
    architecture="gemma3",
    weights_digest=bytes(32),
    layers=7,
    window_tokens=64,
    instruct=True,
)
_BUDGET = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=100, keep_turns=1)
_CHAT = grammar("gemma3-it", FakeTokenizer())


def _contract(record: Identified) -> ContractId:
    return ContractId(object_id(record).digest)


def _sequence(*blocks: ContextBlock) -> SequenceId:
    entries = [Entry(BlockId(object_id(block).digest), 1) for block in blocks]
    contract = ContractId(SEQUENCE_CONTRACT_ID.digest)
    record = ContextSequence(sequence_contract=contract, root=build(entries).root)
    return SequenceId(object_id(record).digest)


def _block(**changed: Any) -> ContextBlock:
    return msgspec.structs.replace(text_block(Role.USER, BlockType.USER_TURN, "a"), **changed)


_ANSWER = text_block(Role.MODEL, BlockType.MODEL_TURN, "b")
_ASSEMBLY = ContextAssembly(
    format_version=1,
    sequence=_sequence(_block(), _ANSWER),
    model_contract=_contract(_MODEL),
    tokenizer_contract=_contract(_CHAT.tokenizer.contract),
    conversation_template=_contract(_CHAT.template),
    separator_grammar=_contract(_CHAT.separator),
    budget_policy=_contract(_BUDGET),
    tool_encoding=_contract(_CHAT.tools),
    media_encoding=_contract(TEXT_ONLY),
    reference_transform=REFERENCE_ID,
)


def test_a_context_id_is_the_assemblys_object_id() -> None:
    identity = object_id(_ASSEMBLY)
    assert type(identity) is ContextId
    again = decode_record(ContextAssembly, encode_record(_ASSEMBLY))
    assert (again, object_id(again)) == (_ASSEMBLY, identity)


@pytest.mark.req("ASM-1")
@pytest.mark.parametrize(
    "field", [name for name in ContextAssembly.__struct_fields__ if name != "format_version"]
)
def test_every_field_is_part_of_the_identity(field: str) -> None:
    kept: ObjectId = getattr(_ASSEMBLY, field)
    changed = msgspec.structs.replace(_ASSEMBLY, **{field: type(kept)(b"x" * 32)})
    assert object_id(changed) != object_id(_ASSEMBLY)


@pytest.mark.req("ASM-1")
def test_order_role_type_source_rendering_name_and_trust_are_part_of_the_identity() -> None:
    sequences = [
        _sequence(_block(), _ANSWER),
        _sequence(_ANSWER, _block()),
        _sequence(_block()),
        *(
            _sequence(_block(**changed), _ANSWER)
            for changed in (
                {"role": Role.SYSTEM},
                {"type": BlockType.OTHER},
                {"source": text_block(Role.USER, BlockType.USER_TURN, "c").source},
                {"rendering": {"path": "p"}},
                {"name": "Ada"},
                {"trust": False},
            )
        ),
    ]
    assemblies = [msgspec.structs.replace(_ASSEMBLY, sequence=each) for each in sequences]
    assert len({object_id(each) for each in assemblies}) == len(sequences)


@pytest.mark.req("ASM-1")
def test_grammar_tokenizer_model_and_policy_are_part_of_the_identity() -> None:
    transcript = grammar("gemma3-transcript", FakeTokenizer())
    changes: list[tuple[str, Identified]] = [
        ("conversation_template", transcript.template),
        ("separator_grammar", transcript.separator),
        ("tokenizer_contract", FakeTokenizer(discipline="other/1").contract),
        ("model_contract", msgspec.structs.replace(_MODEL, weights_digest=b"x" * 32)),
        ("budget_policy", msgspec.structs.replace(_BUDGET, tokens_max=101)),
        ("budget_policy", msgspec.structs.replace(_BUDGET, policy="drop-oldest-turns")),
        ("tool_encoding", msgspec.structs.replace(_CHAT.tools, version=2)),
        ("media_encoding", msgspec.structs.replace(TEXT_ONLY, version=2)),
    ]
    ids = {
        object_id(msgspec.structs.replace(_ASSEMBLY, **{field: _contract(record)}))
        for field, record in changes
    }
    assert len(ids | {object_id(_ASSEMBLY)}) == len(changes) + 1


def test_the_sequence_contract_names_the_formats_that_are_in_use() -> None:
    assert SEQUENCE_CONTRACT.block_schema == BlockId.TAG
    assert object_id(SEQUENCE_CONTRACT) == SEQUENCE_CONTRACT_ID


PARTS = (
    "sequence",
    "model_contract",
    "tokenizer_contract",
    "conversation_template",
    "separator_grammar",
    "budget_policy",
    "tool_encoding",
    "media_encoding",
    "reference_transform",
)
CONTRACTS = [
    kind
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Identified) and kind is not Identified
    if kind.ID is ContractId
]


@pytest.mark.req("ASM-1")
def test_an_assembly_has_exactly_the_parts_that_decide_tokens() -> None:
    assert ContextAssembly.__struct_fields__ == ("format_version", *PARTS)
    assert ContextAssembly.ID is ContextId
    assert AssemblyFields.__struct_fields__ == PARTS[1:]


@pytest.mark.req("ASM-1")
@pytest.mark.parametrize("part", PARTS)
@given(st.randoms(use_true_random=False), st.binary(min_size=32, max_size=32))
def test_another_part_is_another_context(part: str, random: Random, digest: bytes) -> None:
    assembly = Sampler(random).record(ContextAssembly)
    old = getattr(assembly, part)
    changed = msgspec.structs.replace(assembly, **{part: type(old)(digest)})
    assert (object_id(changed) == object_id(assembly)) == (digest == old.digest)
    # Nor do two parts that change places come out the same.
    other = PARTS[(PARTS.index(part) + 1) % len(PARTS)]
    swapped = msgspec.structs.replace(
        assembly,
        **{
            part: type(old)(getattr(assembly, other).digest),
            other: type(getattr(assembly, other))(old.digest),
        },
    )
    assert object_id(swapped) != object_id(assembly) or swapped == assembly


@pytest.mark.req("ASM-1")
def test_a_part_that_is_missing_or_of_another_version_is_no_assembly() -> None:
    assembly = Sampler(Random(1)).record(ContextAssembly)
    value = msgspec.to_builtins(assembly, builtin_types=(bytes,), enc_hook=bytes)
    assert decode_record(ContextAssembly, cbor.encode(value)) == assembly
    for part in value:
        with pytest.raises(RecordError):
            decode_record(
                ContextAssembly, cbor.encode({k: v for k, v in value.items() if k != part})
            )
    with pytest.raises(RecordError):
        decode_record(ContextAssembly, cbor.encode({**value, "format_version": 2}))


@pytest.mark.req("ASM-1")
@given(st.randoms(use_true_random=False))
def test_the_fields_over_a_sequence_are_its_assembly(random: Random) -> None:
    fields = Sampler(random).record(AssemblyFields)
    sequence = SequenceId(random.randbytes(32))
    assembly = fields.over(sequence)
    assert (assembly.format_version, assembly.sequence) == (1, sequence)
    for part in PARTS[1:]:
        assert getattr(assembly, part) == getattr(fields, part)
    assert type(assembly.reference_transform) is TransformId


@pytest.mark.req("ASM-1")
@pytest.mark.parametrize("kind", CONTRACTS)
def test_every_field_of_a_contract_is_in_its_id(kind: type[Identified]) -> None:
    for seed in range(30):
        one = Sampler(Random(seed)).record(kind)
        two = Sampler(Random(seed + 1000)).record(kind)
        for field in kind.__struct_fields__:
            changed = msgspec.structs.replace(one, **{field: getattr(two, field)})
            same = getattr(one, field) == getattr(two, field)
            assert (object_id(changed) == object_id(one)) == same, field


def test_contracts_of_different_kinds_never_share_an_id() -> None:
    """They share a kind of id; the `kind` in their bytes tells them apart."""
    kinds = [
        next(field for field in msgspec.structs.fields(kind) if field.name == "kind").type
        for kind in CONTRACTS
    ]
    assert len(kinds) >= 7
    assert len(set(kinds)) == len(kinds)


def test_a_sequence_is_a_contract_and_a_root() -> None:
    root = NodeId(b"r" * 32)
    assert sequence_of(root) == ContextSequence(sequence_contract=SEQUENCE_CONTRACT_ID, root=root)
    assert object_id(SEQUENCE_CONTRACT) == SEQUENCE_CONTRACT_ID
    assert SEQUENCE_CONTRACT.node_format == FORMAT
    assert TEXT_ONLY.name == "text-only"
    assert object_id(sequence_of(root)) != object_id(sequence_of(NodeId(b"s" * 32)))
    assert decode_record(ContextSequence, encode_record(sequence_of(root))).root == root


def test_what_the_root_signs_for_one_purpose_serves_no_other() -> None:
    contexts = (REGISTRATION_CONTEXT, CAPABILITY_CONTEXT, INVOCATION_CONTEXT)
    assert len(set(contexts)) == 3
    for context in contexts:
        assert context.index(b"\0") == len(context) - 1
