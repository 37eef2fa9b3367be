"""Derivations: a computation named by everything that its result may depend on, and its evidence.

A `DerivationInvocation` says what is computed: the transform and its contract, the inputs in order,
the parameters, the runtime profile, what the result has to be, and what snapshot or seed it is
bound to. Its InvocationId changes with any of these (DRV-1). Ordinals count the inputs from 0
without a gap, so an order has one spelling. A `pure` invocation is bound to no snapshot and a
`snapshot-bound` one to exactly one: two looks at a world that moves are two invocations.

A `DerivationEvidence` says what one execution of it gave, and is immutable. It is testimony: its
executor, a room, signs the payload, and the EvidenceId is the payload's, never the signature's. On
the wire it is `[payload, signature]`, the signature over `huginn.evidence/1`, a zero byte and the
payload as received.

Sources: DRV-1 … DRV-3; derivations of the identity design.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, cast

from protocol.errors import AuthorityError, ContentError, RecordError
from protocol.ids import (
    ContractId,
    EvidenceId,
    InvocationId,
    ParametersId,
    ProfileId,
    TransformId,
    parse_any,
)
from protocol.record import Identified, decode_record, encode_record, object_id
from protocol.resource import check_name
from protocol.signing import PUBLIC_BYTES, Signer, pack_signed, unpack_signed, verify

# What an executor signs, before the payload.
EVIDENCE_CONTEXT: Final = b"huginn.evidence/1\0"
# An assembly has eight inputs, an advance two. A compilation may read some thousand chunks.
INPUTS_MAX: Final = 4096
OUTPUTS_MAX: Final = 4096
MEASUREMENTS_MAX: Final = 64
# A build is named by a digest and a few words.
BUILD_CHARS_MAX: Final = 255
# Signed evidence, in bytes: the widest that the limits above allow, with room for its framing.
EVIDENCE_BYTES_MAX: Final = 2 * 1024 * 1024
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class ExecutionClass(str, Enum):
    """What running again would give.

    `pure`: the same result, everywhere and always. `snapshot-bound`: the same result while the
    named snapshot is what is looked at. `effectful`: a change in the world, which has to be made
    each time. `nondeterministic`: another result perhaps.
    """

    PURE = "pure"
    SNAPSHOT_BOUND = "snapshot-bound"
    EFFECTFUL = "effectful"
    NONDETERMINISTIC = "nondeterministic"


# The classes whose results may be remembered (DRV-2).
REMEMBERED: Final = frozenset((ExecutionClass.PURE, ExecutionClass.SNAPSHOT_BOUND))


class Input(NamedTuple):
    """One input: what it is to the transform, its place, and the text of its id."""

    label: str
    ordinal: int
    id: str


class Output(NamedTuple):
    """One output: what it is of the result, and the text of its id."""

    label: str
    id: str


class Parameters(Identified):
    """The parameters of a transform, all of them: a default that is left out is spelled out here,
    because leaving it out and giving its value are one computation."""

    ID = ParametersId

    v: Literal[1]
    values: dict[str, int | str | bool]


class DerivationInvocation(Identified):
    """What is computed. Inputs in the order that the transform takes them; ids of any kind.

    `snapshot` is the text of the id of what a snapshot-bound transform looks at. `seed` makes a
    transform that samples repeatable, where its runtime profile has proved that it does.
    """

    ID = InvocationId

    format_version: Literal[1]
    execution_class: ExecutionClass
    transform: TransformId
    transform_contract: ContractId
    inputs: tuple[Input, ...]
    parameters: ParametersId
    output_contract: ContractId
    runtime_profile: ProfileId | None = None
    snapshot: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_inputs(self.inputs)
        if self.snapshot is not None:
            _check_id("a snapshot", self.snapshot)
        bound = self.execution_class is ExecutionClass.SNAPSHOT_BOUND
        if bound and self.snapshot is None:
            raise RecordError("a snapshot-bound invocation names its snapshot")
        if self.execution_class is ExecutionClass.PURE and self.snapshot is not None:
            raise RecordError("a pure invocation looks at no snapshot: name what it reads as input")


class DerivationEvidence(Identified):
    """What one execution gave, as its executor (a room's 32-byte public key) testifies.

    `engine_build` names the code that ran. `outputs` in the order of their contract. `measurements`
    are integers with their unit in the name. `verifier` is the evidence that this execution was
    made to check. `authority_epoch` and `domain` say under which authority and for whom it ran.
    """

    ID = EvidenceId

    format_version: Literal[1]
    invocation: InvocationId
    engine_build: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    measurements: dict[str, int]
    authority_epoch: int
    domain: str
    executor: bytes
    verifier: EvidenceId | None = None

    def __post_init__(self) -> None:
        _check_inputs(self.inputs)
        if len(self.outputs) > OUTPUTS_MAX:
            raise RecordError(f"{len(self.outputs)} outputs, at most {OUTPUTS_MAX} are allowed")
        for output in self.outputs:
            _check_label("an output", output.label)
            _check_id("an output", output.id)
        if len(self.measurements) > MEASUREMENTS_MAX:
            raise RecordError(f"at most {MEASUREMENTS_MAX} measurements are allowed")
        for name in self.measurements:
            _check_label("a measurement", name)
        if not 1 <= len(self.engine_build) <= BUILD_CHARS_MAX:
            raise RecordError(f"an engine build is named in 1 to {BUILD_CHARS_MAX} characters")
        if self.authority_epoch < 0:
            raise RecordError(f"an authority's epoch is 0 or more, not {self.authority_epoch}")
        check_name(self.domain)
        if len(self.executor) != PUBLIC_BYTES:
            raise RecordError(f"an executor is a public key of {PUBLIC_BYTES} bytes")


class Derivation(NamedTuple):
    """An invocation and what it gave, before anybody testifies to it."""

    invocation: DerivationInvocation
    outputs: tuple[Output, ...]


def invocation_id(invocation: DerivationInvocation) -> InvocationId:
    return cast("InvocationId", object_id(invocation))


def numbered(inputs: Sequence[tuple[str, object]]) -> tuple[Input, ...]:
    """Inputs from (label, id) pairs, in that order."""
    return tuple(Input(label, place, str(each)) for place, (label, each) in enumerate(inputs))


def attest(
    signer: Signer,
    derivation: Derivation,
    *,
    engine_build: str,
    authority_epoch: int,
    domain: str,
    measurements: Mapping[str, int],
    verifier: EvidenceId | None = None,
) -> bytes:
    """Signed evidence that `signer` executed `derivation` for `domain`; raises RecordError."""
    evidence = DerivationEvidence(
        format_version=1,
        invocation=invocation_id(derivation.invocation),
        engine_build=engine_build,
        inputs=derivation.invocation.inputs,
        outputs=derivation.outputs,
        measurements=dict(measurements),
        authority_epoch=authority_epoch,
        domain=domain,
        executor=signer.public,
        verifier=verifier,
    )
    return pack_signed(signer, EVIDENCE_CONTEXT, encode_record(evidence))


def open_evidence(signed: bytes) -> DerivationEvidence:
    """The evidence in `signed`, whose executor did sign it; whether that executor counts is not
    said.

    Raises EncodingError or RecordError for bytes that are not signed evidence, AuthorityError with
    step `evidence` for a signature that is not the executor's.
    """
    payload, signature = unpack_signed(signed, size_max=EVIDENCE_BYTES_MAX)
    evidence = decode_record(DerivationEvidence, payload)
    if not verify(evidence.executor, EVIDENCE_CONTEXT + payload, signature):
        raise AuthorityError("evidence", "the executor named by the evidence did not sign it")
    return evidence


def check_pair(invocation: DerivationInvocation, evidence: DerivationEvidence) -> None:
    """Raises ContentError unless `evidence` is of exactly `invocation`."""
    named = invocation_id(invocation)
    if evidence.invocation != named:
        raise ContentError(f"evidence of {evidence.invocation}, not of {named}")
    if evidence.inputs != invocation.inputs:
        raise ContentError(f"the evidence of {named} states other inputs than the invocation")


def _check_inputs(inputs: Sequence[Input]) -> None:
    if len(inputs) > INPUTS_MAX:
        raise RecordError(f"{len(inputs)} inputs, at most {INPUTS_MAX} are allowed")
    for place, given in enumerate(inputs):
        if given.ordinal != place:
            raise RecordError(f"input {place} has ordinal {given.ordinal}: they count from 0")
        _check_label("an input", given.label)
        _check_id("an input", given.id)


def _check_label(what: str, label: str) -> None:
    if not _LABEL.fullmatch(label):
        raise RecordError(
            f"{what} labelled {label!r:.80}: a label is 1 to 64 of a-z 0-9 _ -, a letter first"
        )


def _check_id(what: str, text: str) -> None:
    try:
        parse_any(text)
    except ContentError as error:
        raise RecordError(f"{what} is named by an id: {error}") from error
