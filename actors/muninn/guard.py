"""The guard of one invocation: what its evidence says so far, as a function of the log alone.

    none ── evidence ──► active ── other outputs ──► quarantined      (for good)
                         active ── inputs gone ────► expired
                         expired ─ the same outputs again ──► active
                         expired ─ other outputs ──► quarantined

Only what is active is served. A guard outlives the eviction of its evidence, so outputs that
differ are noticed however long ago the first were seen; nothing takes it out of quarantine, and
neither side of a conflict ever replaces the other (DRV-4).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from actors.muninn.evidence import Examined
from protocol.record import Record

# Testimonies that are told apart for one invocation. A replayed one adds nothing before that, and
# agreement beyond it proves nothing more.
EVIDENCE_MAX: Final = 32


class Guard(Record):
    """`outputs`: the digest of the outputs that came first; `seq`: the number in the log of the
    evidence that brought them; `evidence`: the digests of the ids of all testimonies, oldest
    first; `checks`: spot checks that agreed."""

    state: Literal["active", "quarantined", "expired"]
    outputs: bytes
    seq: int
    evidence: list[bytes]
    checks: int


class Step(NamedTuple):
    """The guard after an entry, what became of the entry, and whether it belongs into the log."""

    guard: Guard
    result: Literal["inserted", "already-present", "equal", "conflict", "expired"]
    kept: bool


def witness(guard: Guard | None, examined: Examined, seq: int) -> Step:
    """After evidence, which would be entry `seq` of the log."""
    said, outputs = examined.id.digest, examined.outputs_digest
    if guard is None:
        first = Guard(state="active", outputs=outputs, seq=seq, evidence=[said], checks=0)
        return Step(first, "inserted", kept=True)
    known = said in guard.evidence
    heard = guard.evidence
    if not known and len(heard) < EVIDENCE_MAX:
        heard = [*heard, said]
    if outputs != guard.outputs or guard.state == "quarantined":
        after = msgspec.structs.replace(guard, state="quarantined", evidence=heard)
        return Step(after, "conflict", kept=after != guard)
    verifier = examined.evidence.verifier
    checked = verifier is not None and verifier.digest in guard.evidence and not known
    after = msgspec.structs.replace(
        guard,
        state="active",
        evidence=heard,
        checks=guard.checks + (checked and len(heard) > len(guard.evidence)),
    )
    return Step(after, "equal" if checked else "already-present", kept=after != guard)


def lose_inputs(guard: Guard) -> Step:
    """After its inputs were found to be gone, so that nothing can be checked any more."""
    if guard.state != "active":
        return Step(guard, "conflict" if guard.state == "quarantined" else "expired", kept=False)
    return Step(msgspec.structs.replace(guard, state="expired"), "expired", kept=True)
