"""What the memo tells: of evidence that holds to who looks, of conflicts to the operator."""

from __future__ import annotations

from actors.muninn.index import Suspicion
from actors.muninn.memo import Found
from protocol.derivation import open_evidence
from protocol.ids import EvidenceId, InvocationId
from protocol.messages import muninn as messages
from protocol.record import encode_record


def answer(found: Found) -> messages.Answer:
    """What is told of evidence that holds: who said it first, and how many agree."""
    examined, first = found.examined, found.first
    signed = None if first is None else first.evidence
    began = examined.evidence if signed is None else open_evidence(signed)
    return messages.Answer(
        state="known",
        invocation=examined.invocation,
        outputs=list(examined.evidence.outputs),
        evidence=examined.id,
        executor=began.executor,
        engine_build=began.engine_build,
        first_ns=None if first is None else first.at_ns,
        testimonies=found.testimonies,
        checks=found.checks,
    )


def quarantined(domain: str, key: InvocationId, suspicion: Suspicion) -> messages.Quarantined:
    """Both sides of a conflict."""
    opened = [open_evidence(signed) for signed in suspicion.evidence]
    return messages.Quarantined(
        domain=domain,
        invocation=key,
        testimonies=[
            messages.Testimony(
                evidence=EvidenceId.of(encode_record(each)),
                engine_build=each.engine_build,
                executor=each.executor,
                outputs=list(each.outputs),
            )
            for each in opened
        ],
    )
