"""Asked of the muninn room: what is known of a derivation, and what was learned of it.

Everything here is ids, integers and labels: the room never sees what a prompt says or a model
computed. An execution is stated by the room that ran it, under its own service handle, in batches
and off the caller's path. A look is made under the handle of a caller with `telemetry`, whose
domain decides what is seen: that something is known tells that it was computed. Spot checks are
drawn and handed in by the operator, signed with the installation's key for verifying.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.derivation import DerivationInvocation, Output, Parameters
from protocol.ids import ContextId, EvidenceId, InvocationId
from protocol.messages import Empty, Operation
from protocol.record import Record

# Executions, invocations or checks in one message.
BATCH_MAX: Final = 1024


class Body(Record):
    """The bytes of the output `label`, where they hold nothing but ids: its id is computed anew."""

    label: str
    body: bytes


class Origin(Record):
    """Where an execution's inputs can be had again: the context that it was part of, and the
    parameters that its invocation names. No evidence: what is found there has to give the inputs'
    ids."""

    context: ContextId | None = None
    parameters: Parameters | None = None


class Execution(Record):
    """One execution. `evidence` is signed (`protocol.derivation.attest`), and there only where
    the outcome is `complete`."""

    outcome: Literal["complete", "error", "timeout", "truncated", "cancelled", "partial"]
    invocation: DerivationInvocation
    evidence: bytes | None = None
    bodies: list[Body] | None = None
    origin: Origin | None = None


class Report(Record):
    entries: list[Execution]


# What became of one execution or check. `inserted`; `already-present` (the same outputs are known);
# `conflict` (other outputs are known: neither is served from now on); `capacity`; `not-remembered`
# (its kind or outcome never is); `refused` (it does not hold); `unknown` (the memo cannot say now,
# or does not know what is checked). `equal` (a check agreed); `expired` (inputs are gone, so that
# nothing was checked).
Verdict = Literal[
    "inserted",
    "already-present",
    "conflict",
    "capacity",
    "not-remembered",
    "refused",
    "unknown",
    "equal",
    "expired",
]


class Result(Record):
    """`evidence` is the id computed here. `reason` is for the log of who reported."""

    result: Verdict
    evidence: EvidenceId | None = None
    reason: str | None = None


class Results(Record):
    """In the order of what was reported."""

    results: list[Result]


class Look(Record):
    """What is known of these, in the caller's domain? The message brings delegations for the rooms
    that hold outputs: one that cannot be asked holds none."""

    invocations: list[InvocationId]


class Answer(Record):
    """Where the state is `known`: the invocation, its `outputs` and the newest `evidence` of them;
    who said so first (`executor`, with `engine_build`) and when that was heard (`first_ns`, wall
    nanoseconds, absent if nobody wrote it down); how many testimonies there are (32 are told apart)
    and how many of these are spot checks. `unknown` says nothing of why."""

    state: Literal["known", "unknown"]
    invocation: DerivationInvocation | None = None
    outputs: list[Output] | None = None
    evidence: EvidenceId | None = None
    executor: bytes | None = None
    engine_build: str | None = None
    first_ns: int | None = None
    testimonies: int | None = None
    checks: int | None = None


class Looked(Record):
    """In the order of what was asked. `charged`: derivations on the caller's account for this,
    whatever was known."""

    answers: list[Answer]
    charged: int


class DrawSample(Record):
    """Draw up to `count` remembered invocations for a spot check, all domains or one. `seed` is
    unpredictable to who executes; equal seeds draw alike."""

    count: int
    seed: bytes
    domain: str | None = None


class Sampled(Record):
    """One to execute again. `evidence` goes into the new evidence as its verifier; what it gave is
    not told."""

    domain: str
    invocation: DerivationInvocation
    evidence: EvidenceId
    origin: Origin | None = None


class Samples(Record):
    """`epoch` is the authority's, which new evidence states."""

    entries: list[Sampled]
    epoch: int


class Check(Record):
    """One spot check: signed evidence of the execution that was made for it, its verifier the
    evidence that was sampled. Without: the inputs are gone. `origin` as it was sampled."""

    domain: str
    invocation: DerivationInvocation
    evidence: bytes | None = None
    origin: Origin | None = None


class Verified(Record):
    checks: list[Check]


class DomainMemo(Record):
    """One domain. `invocations` known, `resident` with their evidence at hand, `evidence` entries
    of the log, `damaged` logs put aside. Not `sound`: the index is being rebuilt, and knows
    nothing until then."""

    domain: str
    sound: bool
    invocations: int
    resident: int
    evidence: int
    quarantined: int
    damaged: int


class Testimony(Record):
    """Who said what of a quarantined invocation: one evidence, as it was signed."""

    evidence: EvidenceId
    engine_build: str
    executor: bytes
    outputs: list[Output]


class Quarantined(Record):
    domain: str
    invocation: InvocationId
    testimonies: list[Testimony]


class Account(Record):
    """How many derivations the principal with this key has asked for, known or not."""

    principal: bytes
    derivations: int


class MemoStatus(Record):
    """For the operator. `counters` since the room began, by name; at most `QUARANTINED_MAX` of the
    quarantined are listed, the oldest of each domain first."""

    enabled: bool
    domains: list[DomainMemo]
    quarantined: list[Quarantined]
    counters: dict[str, int]
    accounts: list[Account]


class Rebuild(Record):
    """Build the index anew from the evidence log, of all domains or one. `disown`: begin an empty
    log instead; what was known counts for nothing from then on, and is kept for the operator."""

    disown: bool
    domain: str | None = None


class Rebuilt(Record):
    """`domains` were rebuilt, and hold `invocations` now; `failed` could not be."""

    domains: int
    invocations: int
    failed: int


QUARANTINED_MAX: Final = 100

OPERATIONS: Final[dict[str, Operation]] = {
    "report": Operation(Report, Results, "operate"),
    "look": Operation(Look, Looked, "telemetry"),
    # How many the caller itself has asked for.
    "charge": Operation(Empty, Account, "generate"),
    "verified": Operation(Verified, Results, "operate"),
    "sample": Operation(DrawSample, Samples, "operate"),
    "status": Operation(Empty, MemoStatus, "operate"),
    "rebuild": Operation(Rebuild, Rebuilt, "operate"),
}
