"""What an erasure takes: as far as nobody else has it, and no further than the caller reaches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from msgspec import structs
from msgspec.structs import replace

from actors.authority.principals import PrincipalRecord
from actors.authority.targets import may_see, of_domain, resolved, shown
from actors.room import Call
from protocol.caveats import Scope
from protocol.errors import ContentError, NotVisible
from protocol.handle import Handle
from protocol.ids import CapabilityId, TextId
from protocol.messages.erasure import Erase, ErasureRow, RequestErasure, RoomErased
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.rooms import enrolment

ADMIN = (Right.ERASE, Right.REVOKE)


def key(name: str) -> bytes:
    return Signer(name.encode().ljust(32, b".")).public


def record(
    name: str, namespace: str, domain: str, *, revoked: bool = False, administers: bool = False
) -> PrincipalRecord:
    signer = Signer(name.encode().ljust(32, b"."))
    ask = enrolment(name, signer, namespace=namespace, administers=administers)
    return PrincipalRecord(asked=replace(ask, domain=domain), chain=[], revoked=revoked)


RECORDS = [
    record("operator", "operator", "operator", administers=True),
    record("ann", "team/ann", "team"),
    record("bea", "team/bea", "team"),
    record("cy", "team/bea/cy", "cy"),
    record("dan", "home/dan", "dan"),
    record("eve", "home/eve", "dan", revoked=True),
]


def call(
    resource: Resource = ALL,
    rights: Iterable[Right] = ADMIN,
    *,
    principal: bytes = b"p" * 32,
    audience: bytes = b"a" * 32,
) -> Call:
    handle = Handle(
        lineage=(CapabilityId.of(b"cap"),),
        root=b"r" * 32,
        principal=principal,
        audience=audience,
        resource=resource,
        rights=frozenset(rights),
        scope=Scope(),
        nbf_ns=0,
        exp_ns=2**62,
    )
    return Call(handle=handle, envelope=SimpleNamespace(request_id="q"))  # type: ignore[arg-type]


def on(path: str) -> Resource:
    return Resource(kind=ResourceKind.NAMESPACE, name=path)


def order(target: str, name: str, by: Call | None = None, namespace: str | None = None) -> Erase:
    ask = RequestErasure(target=target, name=name, namespace=namespace)  # type: ignore[arg-type]
    return resolved(by or call(), ask, RECORDS)


@pytest.mark.req("AUT-8")
def test_a_principal_takes_what_is_its_own_alone() -> None:
    found = order("principal", "ann")
    # The domain is bea's too, and so it stays.
    assert (found.domains, found.namespaces, found.names) == ([], ["team/ann"], ["ann"])
    assert found.principals == [key("ann")]
    assert found.takes("team/ann/x")
    assert not found.takes("team/annex")
    found = order("principal", "bea")
    # What cy sees lies in bea's namespace, and stays.
    assert found.takes("team/bea")
    assert found.takes("team/bea/notes")
    assert not found.takes("team/bea/cy")
    assert not found.takes("team/bea/cy/deeper")
    # One who is revoked has nothing: dan's domain is dan's.
    assert order("principal", "dan").domains == ["dan"]


@pytest.mark.req("AUT-8")
def test_a_domain_takes_all_its_principals() -> None:
    found = order("domain", "team")
    assert (found.domains, found.names) == (["team"], ["ann", "bea"])
    assert found.namespaces == ["team/ann", "team/bea"]
    assert order("domain", "dan").names == ["dan", "eve"]
    # Of a domain that nobody is left in, what was computed for it.
    assert order("domain", "gone") == of_domain("gone")


@pytest.mark.req("AUT-8")
def test_a_namespace_takes_all_that_was_computed_where_it_is_seen() -> None:
    assert order("namespace", "team").domains == ["cy", "team"]
    found = order("namespace", "team/bea/cy/old")
    assert (found.domains, found.namespaces) == (["cy", "team"], ["team/bea/cy/old"])
    assert found.names == []
    id = str(TextId.of(b"x"))
    found = order("object", id, namespace="home/dan")
    assert (found.objects, found.domains) == ([id], ["dan"])


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize(
    ("target", "name", "by"),
    [
        ("principal", "nobody", call()),
        ("principal", "ann", call(on("home"))),
        ("principal", "ann", call(on("team"), (Right.ERASE,))),
        ("principal", "ann", call(on("team"), (Right.REVOKE,))),
        ("domain", "dan", call(on("home/dan"))),
        # A handle that dan gave out: at its root dan's key, at its end another.
        ("principal", "dan", call(on("home/dan"), (Right.ERASE,), principal=key("dan"))),
        ("domain", "cy", call(on("team/bea/cy"), (Right.ERASE,), principal=key("cy"))),
        # What another gave to dan is not dan's own handle either.
        ("principal", "dan", call(on("home"), (Right.ERASE,), audience=key("dan"))),
        ("domain", "nobody", call(on("team"))),
        ("namespace", "home", call(on("team"))),
        ("namespace", "No Path", call()),
        ("domain", "", call()),
    ],
)
def test_what_is_not_the_callers_is_not_there(target: str, name: str, by: Call) -> None:
    with pytest.raises(NotVisible) as caught:
        order(target, name, by)
    assert caught.value.message == f"no such {target} in this view"


def test_one_may_erase_oneself() -> None:
    mine = call(on("home/dan"), (Right.ERASE,), principal=key("dan"), audience=key("dan"))
    assert order("principal", "dan", mine).names == ["dan"]


@pytest.mark.parametrize(
    ("target", "name", "match"),
    [
        ("principal", "operator", "administers this installation"),
        ("domain", "operator", "administers this installation"),
        ("domain", "public", "is withdrawn"),
        ("namespace", "public/x", "is withdrawn"),
        ("object", "no id", "id"),
    ],
)
def test_what_nobody_erases(target: str, name: str, match: str) -> None:
    with pytest.raises(ContentError, match=match):
        order(target, name, namespace="home/dan")
    with pytest.raises(ContentError, match="name it"):
        order("object", str(TextId.of(b"x")))


def test_an_erasure_is_shown_to_who_might_have_asked() -> None:
    whole, part = order("namespace", "team"), order("namespace", "team/ann")
    assert may_see(call(), whole)
    assert may_see(call(on("team")), part)
    assert not may_see(call(on("team/ann")), whole)
    assert not may_see(call(on("team")), of_domain("team"))
    assert may_see(call(), of_domain("team"))


def counted(by: Call, of: Erase) -> dict[str, int]:
    """What `by` is told of the counts of an erasure that was carried out."""
    rooms = {
        "assembler": {"blocks": 8},
        "muninn": {"rows": 5},
        "ropes": {"memberships": 3, "objects": 2, "bytes": 70},
        "worker": {"receipts": 4, "new": 9},
    }
    row = ErasureRow(
        id="erasure-1",
        target="namespace",
        name="any",
        cause="asked",
        asked_ns=1,
        due_ns=1,
        rooms=[RoomErased(room=name, counts=counts) for name, counts in rooms.items()],
    )
    told = shown(by, of, row)
    assert [each.room for each in told.rooms] == [*rooms]
    return {kind: count for each in told.rooms for kind, count in each.counts.items()}


@pytest.mark.req("AUT-9")
def test_counts_that_depend_on_others_are_for_who_may_erase_everything() -> None:
    """How many objects nobody else had tells what others have; what a cache held, what they asked;
    and what went from a domain that a namespace lies in, what was computed there."""
    nested = order("namespace", "team/bea/cy")
    assert nested.domains == ["cy", "team"]
    cy = call(on("team/bea/cy"))
    own = replace_scope(cy, domain="cy")
    assert counted(call(), nested) == {
        "blocks": 8,
        "rows": 5,
        "memberships": 3,
        "objects": 2,
        "bytes": 70,
        "receipts": 4,
        "new": 9,
    }
    assert counted(own, nested) == {"memberships": 3}
    of_its_own = structs.replace(nested, domains=["cy"])
    assert counted(own, of_its_own) == {"rows": 5, "memberships": 3, "receipts": 4}
    assert counted(cy, of_its_own) == {"memberships": 3}


def replace_scope(by: Call, *, domain: str) -> Call:
    """The same caller, who computes in `domain`."""
    handle = dataclasses.replace(by.handle, scope=Scope(domain=domain))
    return dataclasses.replace(by, handle=handle)
