"""Derivations: an id for everything that a result depends on, and evidence nobody else can give."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from protocol import cbor
from protocol.derivation import (
    EVIDENCE_BYTES_MAX,
    EVIDENCE_CONTEXT,
    INPUTS_MAX,
    OUTPUTS_MAX,
    DerivationEvidence,
    DerivationInvocation,
    ExecutionClass,
    Input,
    Output,
    attest,
    check_pair,
    invocation_id,
    numbered,
    open_evidence,
)
from protocol.errors import AuthorityError, ContentError, RecordError, RequestError
from protocol.ids import (
    BlockId,
    ContractId,
    EvidenceId,
    ParametersId,
    ProfileId,
    TextId,
    TransformId,
)
from protocol.record import decode_record, encode_record, object_id
from protocol.signing import Signer, pack_signed, unpack_signed
from tests.derivations import STRANGER, WORKER, advance, signed

A, B = (str(BlockId.of(body)) for body in (b"a", b"b"))
BOUND = DerivationInvocation(
    format_version=1,
    execution_class=ExecutionClass.SNAPSHOT_BOUND,
    transform=TransformId.of(b"t"),
    transform_contract=ContractId.of(b"t"),
    inputs=numbered([("first", A), ("second", B)]),
    parameters=ParametersId.of(b"p"),
    output_contract=ContractId.of(b"o"),
    runtime_profile=ProfileId.of(b"r"),
    snapshot=A,
    seed=0,
)
# Of the first advance after a state; see `tests.derivations.advance`.
GOLDEN = "inv:iszdhzh5u5c6gv5gx3qs6oee3h6okk6jwb52kspzm5cgvmsxoeta"
# For each field, values that another invocation could have there.
OTHERS: dict[str, list[Any]] = {
    "execution_class": [ExecutionClass.EFFECTFUL, ExecutionClass.NONDETERMINISTIC],
    "transform": [TransformId.of(b"u")],
    "transform_contract": [ContractId.of(b"u")],
    "inputs": [
        numbered([("second", B), ("first", A)]),
        numbered([("first", B), ("second", A)]),
        numbered([("second", A), ("first", B)]),
        numbered([("first", A)]),
        numbered([("first", A), ("second", B), ("second", B)]),
        # The same digest as another kind of thing.
        numbered([("first", TextId(BlockId.parse(A).digest)), ("second", B)]),
        (),
    ],
    "parameters": [ParametersId.of(b"q")],
    "output_contract": [ContractId.of(b"q")],
    "runtime_profile": [ProfileId.of(b"s"), None],
    "snapshot": [B, str(TextId(BlockId.parse(A).digest))],
    "seed": [1, -1, None],
}


@pytest.mark.req("DRV-1")
def test_any_field_changes_the_id() -> None:
    # The version has one value so far: its place in the encoding is what a second one would move.
    assert set(OTHERS) | {"format_version"} == set(DerivationInvocation.__struct_fields__)
    changed = [
        msgspec.structs.replace(BOUND, **{field: value})
        for field, values in OTHERS.items()
        for value in values
    ]
    ids = {invocation_id(each) for each in (BOUND, *changed)}
    assert len(ids) == 1 + len(changed)
    assert b"format_version" in encode_record(BOUND)


@pytest.mark.req("DRV-1")
def test_an_order_of_inputs_has_one_spelling() -> None:
    first, second = BOUND.inputs
    with pytest.raises(RecordError, match="ordinal 1"):
        msgspec.structs.replace(BOUND, inputs=(second, first))
    for inputs in ([second], [first, first], [first, second._replace(ordinal=2)]):
        value = cbor.decode(encode_record(BOUND))
        assert isinstance(value, dict)
        value["inputs"] = [list(each) for each in inputs]
        with pytest.raises(RecordError, match="ordinal"):
            decode_record(DerivationInvocation, cbor.encode(value))


@pytest.mark.req("DRV-1")
def test_an_invocation_keeps_its_id() -> None:
    assert str(invocation_id(advance(1).invocation)) == GOLDEN


@pytest.mark.req("DRV-2")
@pytest.mark.parametrize(
    ("execution_class", "snapshot", "allowed"),
    [
        ("pure", None, True),
        ("pure", A, False),
        ("snapshot-bound", None, False),
        ("snapshot-bound", A, True),
        ("effectful", None, True),
        ("effectful", A, True),
        ("nondeterministic", None, True),
        ("nondeterministic", A, True),
    ],
)
def test_what_is_pure_looks_at_no_snapshot(
    execution_class: str, snapshot: str | None, allowed: bool
) -> None:
    value = cbor.decode(encode_record(BOUND))
    assert isinstance(value, dict)
    del value["snapshot"]
    value["execution_class"] = execution_class
    if snapshot is not None:
        value["snapshot"] = snapshot
    if allowed:
        record = decode_record(DerivationInvocation, cbor.encode(value))
        assert record.execution_class.value == execution_class
    else:
        with pytest.raises(RecordError, match="snapshot"):
            decode_record(DerivationInvocation, cbor.encode(value))


@pytest.mark.parametrize(
    "inputs",
    [
        [Input("", 0, A)],
        [Input("A", 0, A)],
        [Input("a" * 65, 0, A)],
        [Input("a\n", 0, A)],
        [Input("a", 0, "")],
        [Input("a", 0, A.upper())],
        [Input("a", 0, A + "a")],
        [Input("a", place, A) for place in range(INPUTS_MAX + 1)],
    ],
)
def test_an_input_has_a_label_and_an_id(inputs: list[Input]) -> None:
    with pytest.raises(RecordError):
        msgspec.structs.replace(BOUND, inputs=tuple(inputs))


# -- evidence --------------------------------------------------------------------------------


def test_evidence_states_what_ran() -> None:
    derivation = advance(3)
    data = attest(
        WORKER,
        derivation,
        engine_build="llama.cpp 1",
        authority_epoch=4,
        domain="alice",
        measurements={"prefill_ns": 5, "tokens": 1},
    )
    evidence = open_evidence(data)
    assert evidence == DerivationEvidence(
        format_version=1,
        invocation=invocation_id(derivation.invocation),
        engine_build="llama.cpp 1",
        inputs=derivation.invocation.inputs,
        outputs=derivation.outputs,
        measurements={"prefill_ns": 5, "tokens": 1},
        authority_epoch=4,
        domain="alice",
        executor=WORKER.public,
    )
    check_pair(derivation.invocation, evidence)
    # The id is the payload's: a signature is no part of what was said.
    payload = unpack_signed(data, size_max=EVIDENCE_BYTES_MAX).payload
    assert EvidenceId.of(payload) == object_id(evidence)


@pytest.mark.req("DRV-3")
def test_evidence_that_was_changed_is_none() -> None:
    data = signed(advance(1))
    random = Random(5)
    for at in range(len(data)):
        wounded = bytearray(data)
        wounded[at] ^= 1 << random.randrange(8)
        with pytest.raises(RequestError):
            open_evidence(bytes(wounded))


@pytest.mark.req("DRV-3")
def test_nobody_signs_for_another() -> None:
    payload = unpack_signed(signed(advance(1)), size_max=EVIDENCE_BYTES_MAX).payload
    forgeries = (
        pack_signed(STRANGER, EVIDENCE_CONTEXT, payload),
        pack_signed(WORKER, b"", payload),
        pack_signed(WORKER, b"huginn.cap/1\0", payload),
    )
    for forged in forgeries:
        with pytest.raises(AuthorityError) as caught:
            open_evidence(forged)
        assert caught.value.step == "evidence"


def test_evidence_of_another_invocation_does_not_fit() -> None:
    evidence = open_evidence(signed(advance(1)))
    with pytest.raises(ContentError, match="evidence of"):
        check_pair(advance(2).invocation, evidence)
    drifted = msgspec.structs.replace(evidence, inputs=evidence.inputs[:1])
    with pytest.raises(ContentError, match="other inputs"):
        check_pair(advance(1).invocation, drifted)


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": (Output("A", A),)},
        {"outputs": (Output("a", "a"),)},
        {"outputs": (Output("a", A),) * (OUTPUTS_MAX + 1)},
        {"measurements": {"": 1}},
        {"measurements": {f"m{n}": n for n in range(65)}},
        {"engine_build": ""},
        {"engine_build": "b" * 256},
        {"authority_epoch": -1},
        {"domain": "/"},
        {"executor": b"short"},
        {"inputs": (Input("a", 1, A),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_evidence_has_its_bounds(change: dict[str, Any]) -> None:
    evidence = open_evidence(signed(advance(1)))
    with pytest.raises(RecordError):
        DerivationEvidence(**{**msgspec.structs.asdict(evidence), **change})


def test_the_widest_evidence_can_be_opened() -> None:
    label = "a" * 64
    text = str(EvidenceId.of(b""))
    signer = Signer(b"\x05" * 32)
    evidence = DerivationEvidence(
        format_version=1,
        invocation=invocation_id(BOUND),
        engine_build="\U00010000" * 255,
        inputs=tuple(Input(label, place, text) for place in range(INPUTS_MAX)),
        outputs=(Output(label, text),) * OUTPUTS_MAX,
        measurements={f"m{n}": 2**62 for n in range(64)},
        authority_epoch=2**62,
        domain="d" * 255,
        executor=signer.public,
        verifier=EvidenceId.of(b""),
    )
    assert open_evidence(pack_signed(signer, EVIDENCE_CONTEXT, encode_record(evidence))) == evidence
