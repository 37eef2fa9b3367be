"""The audit log: what was granted, refused, revoked, registered and erased, in the order of it.

It is a hash-chained log that nothing shortens: each entry carries the digest of the one before, so
who remembers one head can tell that nothing before it was changed or taken out. An entry that
belongs to a change is written in the transaction of the change (`audit_entry` makes its bytes).
What rooms refuse comes from them in batches (`actors/refusals.py`), one entry each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from actors.ports import Clock
from protocol import cbor
from protocol.errors import ContentError
from protocol.messages.authority import AskAudit, AuditPage, AuditRow, Refusal, Refused
from store.commit import settled
from store.tables import Append, Tables

AUDIT: Final = "audit"
# Of one answer: 1000 entries of refusals are some megabytes at most.
ROWS_MAX: Final = 1000
# Of one entry: what a room tells at once, with room to spare.
_REFUSALS_MAX: Final = 256
_STEPS_MAX: Final = 64


def audit_entry(
    clock: Clock,
    act: str,
    subject: str,
    rights: list[str] | None = None,
    more: Mapping[str, cbor.Value] | None = None,
) -> bytes:
    """One entry of the audit log: what was done to whom, when, with which rights, and `more`."""
    entry: dict[str, cbor.Value] = {**(more or {}), "act": act, "subject": subject}
    entry["at_ns"] = clock.wall_ns()
    if rights is not None:
        entry["rights"] = list(rights)
    return cbor.encode(entry)


class AuditLog:
    """The log `audit` of `tables`."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._log = tables.log(AUDIT)
        self._clock = clock

    async def refused(self, room: str, said: Refused) -> None:
        """Keep what `room` refused; durable when it returns. Raises ContentError for more than
        a room tells at once."""
        if len(said.refusals) > _REFUSALS_MAX or len(said.counted) > _STEPS_MAX:
            raise ContentError(
                f"{len(said.refusals)} refusals and {len(said.counted)} counts at once: at most "
                f"{_REFUSALS_MAX} and {_STEPS_MAX}"
            )
        more: dict[str, cbor.Value] = {
            "refusals": [_value(each) for each in said.refusals],
            "counted": dict(said.counted),
        }
        entry = audit_entry(self._clock, "refuse", room, more=more)
        await settled(self._tables.apply_soon([Append(AUDIT, entry)]))

    def page(self, ask: AskAudit) -> AuditPage:
        """Entries as they lie in the log. Raises ContentError for numbers out of range."""
        if not 1 <= ask.limit <= ROWS_MAX or (ask.after is not None and ask.after < 0):
            raise ContentError(f"limit goes from 1 to {ROWS_MAX}, after from 0")
        head = self._log.head()
        after = max(0, head.seq - ask.limit) if ask.after is None else ask.after
        rows: list[AuditRow] = []
        for entry in self._log.entries(after):
            if len(rows) == ask.limit or entry.seq > head.seq:
                break
            rows.append(
                AuditRow(
                    seq=entry.seq, previous=entry.previous, digest=entry.digest, body=entry.body
                )
            )
        return AuditPage(rows=rows, head_seq=head.seq, head_digest=head.digest)


def _value(refusal: Refusal) -> dict[str, cbor.Value]:
    return {
        "step": refusal.step,
        "op": refusal.op,
        "request_id": refusal.request_id,
        "at_ns": refusal.at_ns,
        "principal": refusal.principal,
    }
