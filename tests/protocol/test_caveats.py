"""Caveats: what each admits, that several hold together, and that unknown ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.caveats import (
    Caveat,
    DomainCaveat,
    NamespaceCaveat,
    OperationCaveat,
    ProfileCaveat,
    RequestCaveat,
    Scope,
    ServiceCaveat,
    TelemetryCaveat,
)
from protocol.errors import RecordError
from protocol.record import Record, decode_record, encode_record
from protocol.resource import ALL, ResourceKind
from tests.chains import named, namespace, nonce

NAMES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True).map(
    lambda names: tuple(sorted(names))
)


class Holder(Record):
    caveat: Caveat


@pytest.mark.parametrize(
    ("caveat", "value"),
    [
        (ServiceCaveat(names=("a", "b")), {"type": "service", "names": ["a", "b"]}),
        (OperationCaveat(names=("a",)), {"type": "op", "names": ["a"]}),
        (ProfileCaveat(names=("a",)), {"type": "profile", "names": ["a"]}),
        (NamespaceCaveat(paths=("a/b",)), {"type": "namespace", "paths": ["a/b"]}),
        (DomainCaveat(name="a"), {"type": "domain", "name": "a"}),
        (TelemetryCaveat(names=("a",)), {"type": "telemetry", "names": ["a"]}),
        (RequestCaveat(nonce=bytes(16)), {"type": "request", "nonce": bytes(16)}),
    ],
)
def test_each_type_has_one_encoding(caveat: Caveat, value: dict[str, cbor.Value]) -> None:
    encoded = cbor.encode({"caveat": value})
    assert encode_record(Holder(caveat=caveat)) == encoded
    assert decode_record(Holder, encoded) == Holder(caveat=caveat)


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    "value",
    [
        {"type": "weekday", "names": ["monday"]},
        {"names": ["a"]},
        {"type": "service", "names": []},
        {"type": "service", "names": ["b", "a"]},
        {"type": "service", "names": ["a", "a"]},
        {"type": "service", "names": "a"},
        {"type": "service", "names": ["a"], "except": ["b"]},
        {"type": "service", "names": ["*", "a"]},
        {"type": "namespace", "paths": ["a/.."]},
        {"type": "namespace", "names": ["a"]},
        {"type": "domain", "name": ""},
        {"type": "telemetry", "names": []},
        {"type": "request", "nonce": bytes(15)},
        {},
    ],
)
def test_unknown_or_malformed_caveats_are_refused(value: dict[str, cbor.Value]) -> None:
    with pytest.raises(RecordError):
        decode_record(Holder, cbor.encode({"caveat": value}))


@given(st.lists(NAMES, max_size=4))
def test_caveats_of_one_type_hold_together(lists: list[tuple[str, ...]]) -> None:
    services = Scope.of(ServiceCaveat(names=names) for names in lists)
    operations = Scope.of(OperationCaveat(names=names) for names in lists)
    profiles = Scope.of(ProfileCaveat(names=names) for names in lists)
    paths = Scope.of(NamespaceCaveat(paths=names) for names in lists)
    telemetry = Scope.of(TelemetryCaveat(names=names) for names in lists).telemetry
    for name in "abcde":
        expected = all(name in names for names in lists)
        assert services.admits_service(name) == expected
        assert operations.admits_operation(name) == expected
        assert profiles.admits(named(ResourceKind.PROFILE, name)) == expected
        assert profiles.names(named(ResourceKind.PROFILE, name)) == (expected and lists != [])
        assert paths.admits(namespace(f"{name}/below")) == expected
        assert (telemetry is None) == (lists == [])
        assert name in (telemetry or ()) or not (expected and lists)


def test_namespace_caveats_admit_by_segments() -> None:
    scope = Scope.of(
        [NamespaceCaveat(paths=("team/a", "team/b")), NamespaceCaveat(paths=("team",))]
    )
    assert scope.admits(namespace("team/a"))
    assert scope.admits(namespace("team/b/deep"))
    assert not scope.admits(namespace("team"))
    assert not scope.admits(namespace("team/ab"))
    # What lies in namespaces cannot be named around them.
    assert not scope.admits(named(ResourceKind.SESSION, "s"))
    assert scope.admits(named(ResourceKind.SERVICE, "ropes"))


def test_all_is_admitted_only_where_nothing_is_excluded() -> None:
    assert Scope().admits(ALL)
    for caveat in (
        NamespaceCaveat(paths=("a",)),
        ProfileCaveat(names=("a",)),
        DomainCaveat(name="a"),
    ):
        assert not Scope.of([caveat]).admits(ALL)


def test_one_domain_and_one_nonce() -> None:
    scope = Scope.of([DomainCaveat(name="a"), RequestCaveat(nonce=nonce(7))])
    assert (scope.domain, scope.nonce) == ("a", nonce(7))
    assert scope.admits(named(ResourceKind.DOMAIN, "a"))
    assert not scope.admits(named(ResourceKind.DOMAIN, "b"))
    assert scope.names(named(ResourceKind.DOMAIN, "a"))
    assert not scope.names(named(ResourceKind.DOMAIN, "b"))
    assert not Scope().names(named(ResourceKind.DOMAIN, "a"))
    with pytest.raises(RecordError, match="at most one domain"):
        Scope.of([DomainCaveat(name="a"), DomainCaveat(name="b")])
    with pytest.raises(RecordError, match="one request nonce"):
        Scope.of([RequestCaveat(nonce=nonce(1)), RequestCaveat(nonce=nonce(2))])
