"""Families of derivations: which transforms there are, and what may be remembered of them (DRV-7).

A family is a transform under two contracts: what it takes, in order, and what it gives. An
invocation of any other transform, or one that does not fit its contracts, is never remembered: so
a result that lacks an output its contract declares is no result.

* `assemble`: a sequence under contracts → the ContextId and the digest of its token stream. The
  assembly's fields are the inputs, so the invocation names what the ContextId names.
* `advance`: a profile, the chain before and the ids fed → the chain after and the digests of the
  pages written. Pure under a profile whose states are equal bit by bit. Under another one the same
  chain may stand for other bytes, honestly: then it is bound to the snapshot that it started from,
  the state digest of the pages before it, and results from two snapshots are two results.
* `generate`: a profile, a chain, a sampler and a seed → the answer's ids. It samples, so it is
  remembered only with a seed and under a profile that proved its generation reproducible (DRV-2).

Builders are pure functions of ids: a room that reports holds the contents, nobody else needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from msgspec import structs

from protocol.assembly import ContextAssembly, Transform
from protocol.derivation import (
    REMEMBERED,
    Derivation,
    DerivationInvocation,
    ExecutionClass,
    Output,
    Parameters,
    numbered,
)
from protocol.errors import ContentError
from protocol.ids import (
    ChainId,
    ContextId,
    ContractId,
    ObjectId,
    PageId,
    ParametersId,
    ProfileId,
    StateId,
    TokensId,
    TransformId,
)
from protocol.record import Identified, Record, object_id
from protocol.transform import REFERENCE_ID


class Slot(Record):
    """One place of a contract: a label, the kind of id by its prefix, and how many there are."""

    label: str
    prefix: str
    count: Literal["one", "optional", "many"]


class TransformContract(Identified):
    """What a transform takes, in order."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["transform"]
    name: str
    inputs: tuple[Slot, ...]


class OutputContract(Identified):
    """What a result consists of, in order."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["outputs"]
    name: str
    outputs: tuple[Slot, ...]


def _id(record: Identified) -> ContractId:
    return cast("ContractId", object_id(record))


@dataclass(frozen=True)
class Family:
    """`profiled`: its result depends on a runtime profile. `samples`: and on chance, but for a
    seed under a profile that proved its generation reproducible. `snapshot`: the kind of id, by its
    prefix, that it may be bound to; None: it looks at nothing but its inputs."""

    transforms: frozenset[TransformId]
    takes: TransformContract
    gives: OutputContract
    profiled: bool
    samples: bool = False
    snapshot: str | None = None

    def check(self, derivation: Derivation) -> None:
        """Raises ContentError unless the invocation and its outputs fit the contracts."""
        invocation, outputs = derivation
        if invocation.transform not in self.transforms:
            raise ContentError(f"{self.takes.name} is not computed by {invocation.transform}")
        if invocation.output_contract != _id(self.gives):
            raise ContentError(f"{self.takes.name} gives by {_id(self.gives)} alone")
        if (invocation.runtime_profile is not None) is not self.profiled:
            raise ContentError(
                f"{self.takes.name} {'needs a' if self.profiled else 'has no'} runtime profile"
            )
        if invocation.snapshot is not None:
            bound_to = invocation.snapshot.partition(":")[0]
            if bound_to != self.snapshot:
                named = "nothing" if self.snapshot is None else f"a {self.snapshot} id"
                raise ContentError(f"{self.takes.name} is bound to {named}, not a {bound_to} id")
        taken = [(given.label, given.id) for given in invocation.inputs]
        _match(f"{self.takes.name} takes", self.takes.inputs, taken)
        _match(f"{self.takes.name} gives", self.gives.outputs, outputs)


def _match(what: str, slots: Sequence[Slot], given: Sequence[tuple[str, str]]) -> None:
    rest = list(given)
    for slot in slots:
        found = 0
        while rest and rest[0][0] == slot.label and (slot.count == "many" or not found):
            _, text = rest.pop(0)
            if text.partition(":")[0] != slot.prefix:
                raise ContentError(f"{what} as '{slot.label}' a {slot.prefix} id, not {text!r:.80}")
            found += 1
        if not found and slot.count == "one":
            raise ContentError(f"{what} one '{slot.label}', which is missing")
    if rest:
        raise ContentError(f"{what} no '{rest[0][0]}' in that place")


def _slots(*slots: tuple[str, str, Literal["one", "optional", "many"]]) -> tuple[Slot, ...]:
    return tuple(Slot(label=label, prefix=prefix, count=count) for label, prefix, count in slots)


_CONTRACTS: Final = (
    "model_contract",
    "tokenizer_contract",
    "conversation_template",
    "separator_grammar",
    "budget_policy",
    "tool_encoding",
    "media_encoding",
)

ADVANCE: Final = Transform(
    v=1,
    name="huginn.advance",
    specification="Feed the token ids, in one advance of the profile's schedule, to the state that "
    "the previous chain names (none: the empty state). The result is the chain after, and the "
    "digest of each page that the advance wrote.",
    # What it has to give is in the fixtures of each profile.
    vectors_digest=b"",
)
GENERATE: Final = Transform(
    v=1,
    name="huginn.generate",
    specification="Decode from the state that the chain names, with the sampler that the "
    "parameters spell out and the seed, until it ends. The result is the answer's token ids.",
    vectors_digest=b"",
)

ASSEMBLE_FAMILY: Final = Family(
    transforms=frozenset((REFERENCE_ID,)),
    takes=TransformContract(
        v=1,
        kind="transform",
        name="assemble",
        inputs=_slots(
            ("sequence", "seq", "one"), *((name, "contract", "one") for name in _CONTRACTS)
        ),
    ),
    gives=OutputContract(
        v=1,
        kind="outputs",
        name="assemble",
        outputs=_slots(("context", "ctx", "one"), ("stream", "tokens", "one")),
    ),
    profiled=False,
)
ADVANCE_FAMILY: Final = Family(
    transforms=frozenset((cast("TransformId", object_id(ADVANCE)),)),
    takes=TransformContract(
        v=1,
        kind="transform",
        name="advance",
        inputs=_slots(("previous", "chain", "optional"), ("tokens", "tokens", "one")),
    ),
    gives=OutputContract(
        v=1,
        kind="outputs",
        name="advance",
        outputs=_slots(("chain", "chain", "one"), ("page", "page", "many")),
    ),
    profiled=True,
    snapshot=StateId.PREFIX,
)
GENERATE_FAMILY: Final = Family(
    transforms=frozenset((cast("TransformId", object_id(GENERATE)),)),
    takes=TransformContract(
        v=1, kind="transform", name="generate", inputs=_slots(("state", "chain", "one"))
    ),
    gives=OutputContract(
        v=1, kind="outputs", name="generate", outputs=_slots(("answer", "tokens", "one"))
    ),
    profiled=True,
    samples=True,
)
FAMILIES: Final[Mapping[ContractId, Family]] = {
    _id(family.takes): family for family in (ASSEMBLE_FAMILY, ADVANCE_FAMILY, GENERATE_FAMILY)
}
# `assemble` and `advance` have none: their inputs and the profile say everything.
NO_PARAMETERS: Final = Parameters(v=1, values={})


def assembling(assembly: ContextAssembly) -> DerivationInvocation:
    """The invocation that `assembly` is the result of."""
    named: list[tuple[str, ObjectId]] = [("sequence", assembly.sequence)]
    named += [(name, getattr(assembly, name)) for name in _CONTRACTS]
    return _pure(ASSEMBLE_FAMILY, assembly.reference_transform, named, None)


def assembled(assembly: ContextAssembly, stream: TokensId) -> Derivation:
    """That `assembly` was folded to the token stream with digest `stream`."""
    context = cast("ContextId", object_id(assembly))
    outputs = (Output("context", str(context)), Output("stream", str(stream)))
    return Derivation(assembling(assembly), outputs)


def advancing(
    profile: ProfileId,
    previous: ChainId | None,
    tokens: TokensId,
    *,
    snapshot: StateId | None = None,
) -> DerivationInvocation:
    """The invocation that feeds the ids with digest `tokens` after `previous` (None: to an empty
    state) under `profile`.

    `snapshot` is the state digest of the pages that it starts from, where the profile does not
    promise that the chain says everything about them; of no pages, for an empty state."""
    named: list[tuple[str, ObjectId]] = [] if previous is None else [("previous", previous)]
    named.append(("tokens", tokens))
    pure = _pure(ADVANCE_FAMILY, cast("TransformId", object_id(ADVANCE)), named, profile)
    if snapshot is None:
        return pure
    return structs.replace(
        pure, execution_class=ExecutionClass.SNAPSHOT_BOUND, snapshot=str(snapshot)
    )


def advanced(
    profile: ProfileId,
    previous: ChainId | None,
    tokens: TokensId,
    chain: ChainId,
    pages: Sequence[PageId],
    *,
    snapshot: StateId | None = None,
) -> Derivation:
    """That such an advance led to `chain`, and wrote `pages`, in order of their positions."""
    outputs = (Output("chain", str(chain)), *(Output("page", str(page)) for page in pages))
    return Derivation(advancing(profile, previous, tokens, snapshot=snapshot), outputs)


def generating(
    profile: ProfileId, state: ChainId, parameters: Parameters, seed: int
) -> DerivationInvocation:
    """The invocation that decodes from `state` under `profile`, as `parameters`
    (`protocol.generation`) and `seed` say."""
    transform = cast("TransformId", object_id(GENERATE))
    pure = _pure(GENERATE_FAMILY, transform, [("state", state)], profile)
    named = cast("ParametersId", object_id(parameters))
    return structs.replace(pure, parameters=named, seed=seed)


def generated(
    profile: ProfileId, state: ChainId, parameters: Parameters, seed: int, answer: TokensId
) -> Derivation:
    """That such a generation gave the ids with digest `answer`."""
    outputs = (Output("answer", str(answer)),)
    return Derivation(generating(profile, state, parameters, seed), outputs)


def unremembered(
    invocation: DerivationInvocation, reproducible: Collection[ProfileId]
) -> str | None:
    """Why no result of `invocation` is ever remembered; None if one may be (DRV-2).

    `reproducible` are the profiles that proved their generation reproducible on this machine.
    """
    if invocation.execution_class not in REMEMBERED:
        return f"what is {invocation.execution_class.value} is done each time"
    family = FAMILIES.get(invocation.transform_contract)
    if family is None:
        return "no family has this transform contract"
    if family.samples and invocation.seed is None:
        return "it samples without a seed"
    if invocation.seed is not None and invocation.runtime_profile not in reproducible:
        return "it is seeded under a profile that has not proved its generation reproducible"
    return None


def _pure(
    family: Family,
    transform: TransformId,
    named: Sequence[tuple[str, ObjectId]],
    profile: ProfileId | None,
) -> DerivationInvocation:
    return DerivationInvocation(
        format_version=1,
        execution_class=ExecutionClass.PURE,
        transform=transform,
        transform_contract=_id(family.takes),
        inputs=numbered(named),
        parameters=cast("ParametersId", object_id(NO_PARAMETERS)),
        output_contract=_id(family.gives),
        runtime_profile=profile,
    )
