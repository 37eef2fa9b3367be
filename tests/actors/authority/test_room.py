"""The authority room: granting under a grant, and no further than its own reach."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocol.capability import decode_link
from protocol.caveats import TelemetryCaveat
from protocol.errors import (
    AuthorityError,
    Conflict,
    ContentError,
    InvocationError,
    NotVisible,
    RecordError,
    StoreFault,
)
from protocol.messages import Empty
from protocol.messages import authority as messages
from protocol.signing import Signer
from tests.authority_asks import CAROL, audit, enroll, listed, narrowed, revoke
from tests.rooms import Installation, Principal, enrolment


async def test_the_operator_enrolls_a_principal(house: Installation, operator: Principal) -> None:
    ask = enrolment("carol", CAROL, namespace="team/carol")
    enrolled = await enroll(operator, ask)
    assert await enroll(operator, ask) == enrolled
    with pytest.raises(Conflict):
        await enroll(operator, enrolment("carol", operator.signer))
    assert enrolled.admin_chain is None
    assert audit(house)[-1] == ("grant", "carol")


async def test_nobody_else_does(house: Installation, operator: Principal) -> None:
    alice = await house.enroll("alice")
    ask = enrolment("carol", CAROL)
    with pytest.raises(InvocationError, match="'enroll' needs the right 'grant'"):
        await alice.caller.ask("authority", "enroll", ask, messages.Enrolled)
    with pytest.raises(AuthorityError, match="alice does not administer"):
        await enroll(alice, ask)
    with pytest.raises(InvocationError, match="needs the right 'grant'"):
        await operator.caller.ask("authority", "enroll", ask, messages.Enrolled)
    assert [row.name for row in await listed(operator)] == ["operator", "alice"]


async def test_no_message_makes_one_who_administers(
    house: Installation, operator: Principal
) -> None:
    with pytest.raises(NotVisible):
        await enroll(operator, enrolment("carol", CAROL, administers=True))
    assert [row.name for row in await listed(operator)] == ["operator"]


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize(
    "changes", [{"namespace": "public"}, {"namespace": "public/a"}, {"domain": "public"}]
)
async def test_nobody_is_given_what_is_everybodys(
    house: Installation, operator: Principal, changes: dict[str, str]
) -> None:
    ask = replace(enrolment("carol", CAROL), **changes)
    with pytest.raises(ContentError, match="everybody's: choose other names"):
        await enroll(operator, ask)
    assert [row.name for row in await listed(operator)] == ["operator"]
    await enroll(operator, enrolment("carol", CAROL, namespace="publican"))


@pytest.mark.req("AUT-7")
async def test_telemetry_on_what_is_public_is_granted_by_who_has_it(
    house: Installation, operator: Principal
) -> None:
    ask = enrolment("carol", CAROL, namespace="team/carol", telemetry=["public"])
    made = await enroll(operator, ask)
    caveats = decode_link(made.chain[0]).capability.caveats
    assert TelemetryCaveat(names=("public",)) in caveats
    # One who administers a part has telemetry on no domain.
    part = narrowed(house, operator, "team")
    ask = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora", telemetry=["public"])
    with pytest.raises(NotVisible):
        await part.ask("authority", "enroll", ask, messages.Enrolled, administer=True)


async def test_one_who_administers_a_part_reaches_no_other_part(
    house: Installation, operator: Principal
) -> None:
    await house.enroll("alice")
    await house.enroll("member", namespace="team/member")
    await house.enroll("teamster")
    part = narrowed(house, operator, "team")
    found = await part.ask("authority", "principals", Empty(), messages.Principals, administer=True)
    assert [row.name for row in found.principals] == ["member"]
    ask = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora")
    await part.ask("authority", "enroll", ask, messages.Enrolled, administer=True)
    for namespace in ("alice", "teamster"):
        beyond = enrolment("eve", Signer(b"\x23" * 32), namespace=namespace)
        with pytest.raises(NotVisible):
            await part.ask("authority", "enroll", beyond, messages.Enrolled, administer=True)
    refusals = []
    for name in ("alice", "teamster", "nobody"):
        with pytest.raises(NotVisible) as caught:
            await part.ask(
                "authority",
                "revoke",
                messages.Revoke(name=name),
                Empty,
                administer=True,
            )
        refusals.append(caught.value.message.replace(name, "…"))
    assert len(set(refusals)) == 1
    assert not any(row.revoked for row in await listed(operator))
    await revoke(operator, "alice")
    told = await part.ask(
        "authority", "revoke", messages.Revoke(name="member"), Empty, administer=True
    )
    # Nothing of alice, who is none of its own.
    assert told == Empty()
    assert {row.name for row in await listed(operator) if row.revoked} == {"alice", "member"}


async def test_one_who_administers_a_part_takes_no_name_and_no_domain_from_another(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    part = narrowed(house, operator, "team")
    mine = enrolment("dora", Signer(b"\x22" * 32), namespace="team/dora")
    for taken in (
        # Alice's own key is public: with it she would be moved into the part, and could be revoked.
        enrolment("alice", alice.signer, namespace="team/alice"),
        replace(mine, domain="alice"),
    ):
        with pytest.raises(NotVisible):
            await part.ask("authority", "enroll", taken, messages.Enrolled, administer=True)
    rows = {row.name: row.namespace for row in await listed(operator)}
    assert rows == {"operator": "operator", "alice": "alice"}
    # Who administers all of it may: sharing is granted on purpose.
    await enroll(operator, replace(mine, domain="alice"))


@pytest.mark.req("AUT-3")
async def test_a_list_of_principals_gives_nothing_to_use(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice", rights=["write", "read"])
    rows = await listed(operator)
    assert rows[1] == messages.PrincipalRow(
        name="alice",
        public_key=alice.signer.public,
        namespace="alice",
        domain="alice",
        rights=["read", "write"],
        revoked=False,
    )
    answer = house.post.replies[-1]
    for principal in (alice, operator):
        for chain in (principal.row.chain, principal.row.admin_chain or []):
            assert not any(link in answer for link in chain)


async def test_a_bad_path_is_refused_as_such(operator: Principal) -> None:
    with pytest.raises(RecordError, match="not a namespace path"):
        await enroll(operator, enrolment("carol", CAROL, namespace="Up/Case"))


async def test_a_drained_authority_has_closed_its_tables(
    house: Installation, operator: Principal
) -> None:
    await house.post.rooms["authority"].drain()
    with pytest.raises(StoreFault, match="closed"):
        await listed(operator)
