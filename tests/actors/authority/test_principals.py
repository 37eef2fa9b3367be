"""Principals: what is granted, to whom, for how long, and what revoking takes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.authority.principals import ADMIN_RIGHTS, NAMESPACE_RIGHTS, Principals, audit_entry
from protocol import cbor
from protocol.capability import decode_link
from protocol.chain import verify_chain
from protocol.errors import CapabilityError, Conflict, ContentError, NotVisible, RecordError
from protocol.handle import Handle
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer
from store.memory_tables import MemoryTables
from tests.rooms import EVERY_RIGHT, SECOND, YEAR_NS, enrolment
from tests.worker_rooms import CountingEntropy, HandClock

ROOT, ALICE, MALLORY = (Signer(bytes([n]) * 32) for n in (1, 2, 3))


class Desk:
    """Principals over tables in memory, and what a room that trusts their root would say."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.tables = MemoryTables()
        self.principals = Principals(self.tables, ROOT, self.clock, CountingEntropy())

    def handle(self, chain: list[bytes]) -> Handle:
        revoked = set(self.principals.revocations().revoked)
        return verify_chain(
            chain,
            {ROOT.public},
            self.clock.now_ns,
            lambda capability_id, _: capability_id.digest in revoked,
        )

    def holds(self, chain: list[bytes]) -> bool:
        try:
            self.handle(chain)
        except CapabilityError as error:
            if error.step != "revocation":
                raise
            return False
        return True

    @property
    def audit(self) -> list[dict[str, cbor.Value]]:
        entries = [cbor.decode(entry.body) for entry in self.tables.log("audit").entries()]
        assert all(isinstance(entry, dict) for entry in entries)
        return entries  # type: ignore[return-value]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def namespace(path: str) -> Resource:
    return Resource(kind=ResourceKind.NAMESPACE, name=path)


async def test_a_principal_gets_a_handle_on_its_namespace_in_its_domain(desk: Desk) -> None:
    ask = enrolment("alice", ALICE, namespace="team/alice", rights=["read", "write"])
    enrolled = await desk.principals.enroll(ask)
    handle = desk.handle(enrolled.chain)
    assert (handle.root, handle.principal, handle.audience) == (
        ROOT.public,
        ALICE.public,
        ALICE.public,
    )
    assert handle.resource == namespace("team/alice")
    assert handle.rights == {Right.READ, Right.WRITE}
    assert handle.domain == "alice"
    assert handle.scope.profiles == frozenset({"raven"})
    assert (handle.nbf_ns, handle.exp_ns) == (desk.clock.now_ns, desk.clock.now_ns + YEAR_NS)
    assert enrolled.admin_chain is None
    assert not handle.permits(Right.READ, namespace("team"))


async def test_without_profiles_named_there_is_no_caveat_on_them(desk: Desk) -> None:
    ask = enrolment("alice", ALICE, profiles=[])
    assert desk.handle((await desk.principals.enroll(ask)).chain).scope.profiles is None


async def test_one_who_administers_gets_a_second_handle_that_reads_nothing(desk: Desk) -> None:
    enrolled = await desk.principals.enroll(enrolment("root", ALICE, administers=True))
    assert enrolled.admin_chain is not None
    handle = desk.handle(enrolled.admin_chain)
    assert handle.resource == ALL
    assert handle.rights == ADMIN_RIGHTS
    reading = {Right.READ, Right.WRITE, Right.ASSEMBLE, Right.GENERATE, Right.ADVANCE}
    assert not reading & handle.rights
    assert not ({Right.GRANT, Right.OPERATE, Right.REVOKE} & desk.handle(enrolled.chain).rights)


async def test_enrolling_again_gives_the_same_handles(desk: Desk) -> None:
    ask = enrolment("alice", ALICE, administers=True)
    first = await desk.principals.enroll(ask)
    rows = desk.tables.rows("principals")
    desk.clock.now_ns += YEAR_NS // 2 - 1
    assert await desk.principals.enroll(ask) == first
    assert desk.tables.rows("principals") == rows
    assert len(desk.audit) == 1


async def test_after_half_of_its_life_a_handle_is_given_anew(desk: Desk) -> None:
    ask = enrolment("alice", ALICE)
    first = await desk.principals.enroll(ask)
    desk.clock.now_ns += YEAR_NS // 2
    second = await desk.principals.enroll(ask)
    assert second.chain != first.chain
    assert desk.handle(second.chain).exp_ns == desk.clock.now_ns + YEAR_NS
    # Renewing takes nothing back: who still holds the first may finish with it.
    assert desk.holds(first.chain)
    assert len(desk.principals.rows()) == 1


@pytest.mark.req("AUT-4")
async def test_revoking_takes_back_every_handle_ever_given(desk: Desk) -> None:
    """Also those that were renewed since, and those given with other rights."""
    given_out = []
    for rights in (EVERY_RIGHT, EVERY_RIGHT, ["read"]):
        enrolled = await desk.principals.enroll(
            enrolment("alice", ALICE, rights=rights, administers=True)
        )
        given_out += [enrolled.chain, enrolled.admin_chain or []]
        desk.clock.now_ns += YEAR_NS // 2 + 1
    desk.clock.now_ns -= YEAR_NS // 2
    current = [chain for chain in given_out if desk.clock.now_ns < _end(chain)]
    assert len(current) == 4
    assert all(desk.holds(chain) for chain in current)
    revocations = await desk.principals.revoke("alice")
    assert not any(desk.holds(chain) for chain in current)
    ids = {decode_link(chain[0]).id.digest for chain in given_out}
    assert ids == set(revocations.revoked)
    assert revocations.revoked == sorted(revocations.revoked)
    assert revocations.epoch == len(ids)


def _end(chain: list[bytes]) -> int:
    return decode_link(chain[0]).capability.exp_ns


async def test_a_name_is_one_keys_until_it_is_revoked(desk: Desk) -> None:
    first = await desk.principals.enroll(enrolment("alice", ALICE))
    with pytest.raises(Conflict, match="another key"):
        await desk.principals.enroll(enrolment("alice", MALLORY))
    assert desk.holds(first.chain)
    await desk.principals.revoke("alice")
    second = await desk.principals.enroll(enrolment("alice", MALLORY))
    assert desk.handle(second.chain).principal == MALLORY.public
    assert not desk.holds(first.chain)
    # And back: enrolled anew, the first key's old handle stays revoked.
    await desk.principals.revoke("alice")
    third = await desk.principals.enroll(enrolment("alice", ALICE))
    assert [desk.holds(each.chain) for each in (first, second, third)] == [False, False, True]


async def test_the_revoked_are_listed_as_such(desk: Desk) -> None:
    await desk.principals.enroll(enrolment("alice", ALICE))
    await desk.principals.enroll(enrolment("bob", MALLORY))
    await desk.principals.revoke("alice")
    assert [(row.name, row.revoked) for row in desk.principals.rows()] == [
        ("alice", True),
        ("bob", False),
    ]
    again = await desk.principals.revoke("alice")
    assert again == desk.principals.revocations()
    assert again.epoch == 1


async def test_who_is_not_enrolled_is_not_revoked(desk: Desk) -> None:
    with pytest.raises(NotVisible, match="no principal 'nobody'"):
        await desk.principals.revoke("nobody")
    assert desk.principals.revocations().epoch == 0


@given(st.sets(st.sampled_from(list(Right)), min_size=1))
async def test_only_rights_of_a_namespace_are_granted_on_one(rights: set[Right]) -> None:
    desk = Desk()
    ask = enrolment("alice", ALICE, rights=[right.value for right in rights])
    if rights <= NAMESPACE_RIGHTS:
        assert desk.handle((await desk.principals.enroll(ask)).chain).rights == rights
        return
    with pytest.raises(ContentError, match="no namespace handle carries") as caught:
        await desk.principals.enroll(ask)
    for right in rights - NAMESPACE_RIGHTS:
        assert right.value in caught.value.message
    assert desk.principals.rows() == []


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"rights": ["read", "fly"]}, ContentError, "'fly' is not a right; the rights are read,"),
        ({"rights": []}, RecordError, "at least one right"),
        ({"lifetime_ns": 0}, ContentError, "lifetime_ns 0 is not in 1"),
        ({"lifetime_ns": -SECOND}, ContentError, "lifetime_ns"),
        ({"lifetime_ns": CAPABILITY_LIFETIME_NS_MAX + 1}, ContentError, "lifetime_ns"),
        ({"namespace": "Team"}, RecordError, "not a namespace path"),
        ({"namespace": "team/../x"}, RecordError, "not a namespace path"),
    ],
)
async def test_what_cannot_be_granted_leaves_no_trace(
    desk: Desk, changes: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        await desk.principals.enroll(enrolment("alice", ALICE, **changes))
    assert desk.principals.rows() == []
    assert desk.audit == []


async def test_a_public_key_that_is_none_is_refused(desk: Desk) -> None:
    class Weak:
        public = b"\x01" + bytes(31)

    with pytest.raises(CapabilityError) as caught:
        await desk.principals.enroll(enrolment("alice", Weak()))  # type: ignore[arg-type]
    assert caught.value.step == "key"
    assert desk.principals.rows() == []


async def test_the_audit_log_says_who_was_granted_what_and_revoked(desk: Desk) -> None:
    await desk.principals.enroll(enrolment("alice", ALICE, rights=["write", "read"]))
    desk.clock.now_ns += SECOND
    await desk.principals.revoke("alice")
    assert desk.audit == [
        {
            "act": "grant",
            "subject": "alice",
            "at_ns": desk.clock.now_ns - SECOND,
            "rights": ["read", "write"],
        },
        {"act": "revoke", "subject": "alice", "at_ns": desk.clock.now_ns},
    ]
    assert desk.tables.log("audit").verify().seq == 2


def test_an_audit_entry_is_one_encoding() -> None:
    entry = audit_entry(HandClock(7), "register", "contract:x")
    assert cbor.decode(entry) == {"act": "register", "subject": "contract:x", "at_ns": 7}
