"""Asked of the muninn room: what is known of a derivation, and what was learned of it.

Everything here is ids, integers and labels: the room never sees what a prompt says or a model
computed. An execution is stated by the room that ran it, under its own service handle, in batches
and off the caller's path. A look is made by such a room under the handle of the caller whose turn
it is, so the caller's domain decides what is seen.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.derivation import DerivationInvocation, Output
from protocol.ids import EvidenceId, InvocationId
from protocol.messages import Empty, Operation
from protocol.record import Record

# Executions, invocations or checks in one message.
BATCH_MAX: Final = 1024


class Body(Record):
    """The bytes of the output `label`, where they hold nothing but ids: its id is computed anew."""

    label: str
    body: bytes


class Execution(Record):
    """One execution. `evidence` is signed (`protocol.derivation.attest`), and there only where
    the outcome is `complete`."""

    outcome: Literal["complete", "error", "timeout", "truncated", "cancelled", "partial"]
    invocation: DerivationInvocation
    evidence: bytes | None = None
    bodies: list[Body] | None = None


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
    """What is known of these, in the caller's domain?"""

    invocations: list[DerivationInvocation]


class Answer(Record):
    """`outputs` and their `evidence` where the state is `known`. `unknown` says nothing of why."""

    state: Literal["known", "unknown"]
    outputs: list[Output] | None = None
    evidence: EvidenceId | None = None


class Looked(Record):
    """In the order of what was asked."""

    answers: list[Answer]


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


class Samples(Record):
    entries: list[Sampled]


class Check(Record):
    """One spot check: signed evidence of the execution that was made for it, its verifier the
    evidence that was sampled. Without: the inputs are gone."""

    domain: str
    invocation: DerivationInvocation
    evidence: bytes | None = None


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


class MemoStatus(Record):
    """For the operator. `counters` since the room began, by name; at most `QUARANTINED_MAX` of the
    quarantined are listed, the oldest of each domain first."""

    enabled: bool
    domains: list[DomainMemo]
    quarantined: list[Quarantined]
    counters: dict[str, int]


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
    "look": Operation(Look, Looked, "read"),
    "verified": Operation(Verified, Results, "operate"),
    "sample": Operation(DrawSample, Samples, "operate"),
    "status": Operation(Empty, MemoStatus, "operate"),
    "rebuild": Operation(Rebuild, Rebuilt, "operate"),
}
