"""How long what was computed for a domain outlives the authority of everybody in it.

By policy: `immediate`, or `bounded` by so many seconds. The clean-up is an erasure like any other,
planned in the same table, so that a crash finds it again; it is planned by looking at who is a
principal, so that nothing has to be remembered between a revocation and it. A domain in which
somebody has authority again, before its time is up, keeps what it has.
"""

from __future__ import annotations

from typing import Final

from actors.authority.principals import PrincipalRecord
from protocol.errors import ContentError
from protocol.messages.erasure import Retention, Retentions
from protocol.record import decode_record, encode_record
from store.tables import Delete, Put, Tables

_NS_PER_S: Final = 10**9
# A day: long enough to take back a revocation made by mistake, and warm at that.
STANDARD: Final = Retention(domain="*", policy="bounded", seconds=86_400)
SECONDS_MAX: Final = 366 * 86_400
_TABLE: Final = "retention"


class RetentionPolicies:
    """The policies in a table of `tables`, by domain; `STANDARD` for all others."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.keyed(_TABLE)

    def of(self, domain: str) -> Retention:
        found = self._table.get(domain.encode())
        return STANDARD if found is None else decode_record(Retention, found)

    def all(self) -> Retentions:
        rows = sorted(self._table.items())
        return Retentions(
            standard=STANDARD, domains=[decode_record(Retention, row) for _, row in rows]
        )

    def put(self, policy: Retention) -> Put:
        """The change that sets `policy`. Raises ContentError for one that cannot be."""
        if policy.policy == "immediate" and policy.seconds:
            raise ContentError(
                f"'immediate' waits for nothing, not {policy.seconds} s: say 'bounded'",
                param="seconds",
            )
        if policy.policy == "bounded" and not 1 <= policy.seconds <= SECONDS_MAX:
            raise ContentError(
                f"'bounded' is 1 to {SECONDS_MAX} seconds, not {policy.seconds}", param="seconds"
            )
        return Put(_TABLE, policy.domain.encode(), encode_record(policy))

    def drop(self, domain: str) -> Delete:
        return Delete(_TABLE, domain.encode())

    def delay_ns(self, domain: str) -> int:
        """How long after the last revocation in `domain` it is cleaned."""
        return self.of(domain).seconds * _NS_PER_S


def abandoned(records: list[PrincipalRecord]) -> set[str]:
    """The domains that have principals, all of which are revoked."""
    held = {record.asked.domain for record in records if not record.revoked}
    return {record.asked.domain for record in records} - held
