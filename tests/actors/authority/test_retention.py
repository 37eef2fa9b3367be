"""Retention policies: kept by domain, one standard for all others, refused where they cannot be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.authority.principals import PrincipalRecord
from actors.authority.retention import SECONDS_MAX, STANDARD, RetentionPolicies, abandoned
from protocol.errors import ContentError
from protocol.messages.erasure import Retention
from protocol.signing import Signer
from store.memory_tables import MemoryTables
from tests.rooms import enrolment

HOUR = Retention(domain="team", policy="bounded", seconds=3600)


@pytest.mark.req("AUT-4")
def test_a_policy_holds_for_its_domain_alone() -> None:
    tables = MemoryTables()
    policies = RetentionPolicies(tables)
    assert policies.of("team") == STANDARD
    tables.apply([policies.put(HOUR)])
    assert policies.of("team") == HOUR
    assert policies.delay_ns("team") == 3600 * 10**9
    assert policies.delay_ns("teams") == STANDARD.seconds * 10**9
    assert policies.all().domains == [HOUR]
    tables.apply([policies.put(Retention(domain="team", policy="immediate", seconds=0))])
    assert policies.delay_ns("team") == 0
    tables.apply([policies.drop("team")])
    assert policies.of("team") == STANDARD


@pytest.mark.parametrize(
    "policy",
    [
        replace(HOUR, seconds=0),
        replace(HOUR, seconds=-1),
        replace(HOUR, seconds=SECONDS_MAX + 1),
        replace(HOUR, policy="immediate"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(policy: Retention) -> None:
    with pytest.raises(ContentError, match=r"immediate|bounded"):
        RetentionPolicies(MemoryTables()).put(policy)


def test_a_domain_is_abandoned_when_the_last_one_is_revoked() -> None:
    def record(name: str, domain: str, *, revoked: bool) -> PrincipalRecord:
        ask = replace(enrolment(name, Signer(name.encode() * 32)), domain=domain)
        return PrincipalRecord(asked=ask, chain=[], revoked=revoked)

    assert abandoned([]) == set()
    rows = [
        record("a", "team", revoked=True),
        record("b", "team", revoked=False),
        record("c", "alone", revoked=True),
    ]
    assert abandoned(rows) == {"alone"}
    assert abandoned([*rows[:1], *rows[2:]]) == {"team", "alone"}
