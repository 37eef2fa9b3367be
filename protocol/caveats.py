"""Caveats: typed conditions that a handle carries, and the scope that they leave together.

Every caveat only narrows: several of one type hold all at once, a child repeats every caveat of
its parent, and a type that is not listed here makes the capability unreadable (fail closed).

Two types name what a handle on a namespace reaches beside it, so that one chain carries a whole
chat turn: `profile`, where its tokens may be computed, and `domain`, in which that is shared. Such
a handle reaches no profile and no domain that no caveat names. So that naming one is never a
gain, these two may first appear only at the root or under a parent on `all`, which reaches every
profile and domain (`check_attenuation`). A computation-sharing domain comes with the principal,
and a principal who has none cannot choose one (AUT-5).

A third, `telemetry`, names domains beside that one of whose reuse the holder may be told. It may
first appear at the root, or under a parent on `all` that no domain caveat binds yet. Under one
that has it and no domain, a domain that is named is one of those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from protocol.errors import RecordError
from protocol.record import Record
from protocol.resource import Resource, ResourceKind, check_name, check_path, path_covers
from protocol.signing import NONCE_BYTES

# What lies in namespaces: nameable under a namespace caveat only through its namespace.
_IN_NAMESPACES: Final = frozenset(
    (ResourceKind.OBJECT, ResourceKind.SEQUENCE, ResourceKind.SESSION, ResourceKind.SOURCE)
)


def _check_sorted(names: tuple[str, ...]) -> None:
    if not names or list(names) != sorted(set(names)):
        raise RecordError("a caveat lists at least one name, sorted, each once")


class _Names(Record):
    """At least one name, sorted, each once."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_sorted(self.names)
        for name in self.names:
            check_name(name)


class ServiceCaveat(_Names, tag_field="type", tag="service"):
    """Only these rooms accept an invocation."""


class OperationCaveat(_Names, tag_field="type", tag="op"):
    """Only these operations are accepted."""


class ProfileCaveat(_Names, tag_field="type", tag="profile"):
    """Only these runtime profiles."""


class NamespaceCaveat(Record, tag_field="type", tag="namespace"):
    """Only these namespaces and what lies below them."""

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_sorted(self.paths)
        for path in self.paths:
            check_path(path)


class DomainCaveat(Record, tag_field="type", tag="domain"):
    """Only this computation-sharing domain."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


class TelemetryCaveat(_Names, tag_field="type", tag="telemetry"):
    """The right `telemetry` reaches these computation-sharing domains too, and no others beside
    the domain that it is on."""


class RequestCaveat(Record, tag_field="type", tag="request"):
    """Only the invocation with this 16-byte nonce."""

    nonce: bytes

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_BYTES:
            raise RecordError(f"a request caveat holds a nonce of {NONCE_BYTES} bytes")


Caveat = (
    ServiceCaveat
    | OperationCaveat
    | NamespaceCaveat
    | ProfileCaveat
    | DomainCaveat
    | TelemetryCaveat
    | RequestCaveat
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a handle's caveats leave. None: not narrowed by any caveat of that type."""

    services: frozenset[str] | None = None
    operations: frozenset[str] | None = None
    profiles: frozenset[str] | None = None
    domain: str | None = None
    nonce: bytes | None = None
    # Domains that telemetry reaches beside `domain`. None: as the handle's resource says.
    telemetry: frozenset[str] | None = None
    # One set of paths for each namespace caveat; a path must be covered in every set.
    namespaces: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, caveats: Iterable[Caveat]) -> Scope:
        """All of `caveats` at once. Raises RecordError when two name different domains or nonces:
        nothing could satisfy both."""
        services: frozenset[str] | None = None
        operations: frozenset[str] | None = None
        profiles: frozenset[str] | None = None
        telemetry: frozenset[str] | None = None
        domains: set[str] = set()
        nonces: set[bytes] = set()
        namespaces: list[tuple[str, ...]] = []
        for caveat in caveats:
            match caveat:
                case ServiceCaveat():
                    services = _narrowed(services, caveat.names)
                case OperationCaveat():
                    operations = _narrowed(operations, caveat.names)
                case ProfileCaveat():
                    profiles = _narrowed(profiles, caveat.names)
                case NamespaceCaveat():
                    namespaces.append(caveat.paths)
                case DomainCaveat():
                    domains.add(caveat.name)
                case TelemetryCaveat():
                    telemetry = _narrowed(telemetry, caveat.names)
                case RequestCaveat():
                    nonces.add(caveat.nonce)
                case _ as unknown:
                    assert_never(unknown)
        if len(domains) > 1 or len(nonces) > 1:
            raise RecordError("a capability names at most one domain and one request nonce")
        return cls(
            services=services,
            operations=operations,
            profiles=profiles,
            domain=min(domains, default=None),
            nonce=min(nonces, default=None),
            telemetry=telemetry,
            namespaces=tuple(namespaces),
        )

    def admits_service(self, name: str) -> bool:
        """Whether no caveat excludes the room `name`."""
        return self.services is None or name in self.services

    def admits_operation(self, name: str) -> bool:
        """Whether no caveat excludes the operation `name`."""
        return self.operations is None or name in self.operations

    def admits(self, resource: Resource) -> bool:
        """Whether no caveat excludes `resource`."""
        name = resource.name
        if resource.kind is ResourceKind.ALL:
            return not self.namespaces and self.profiles is None and self.domain is None
        if name is None:
            return False
        if resource.kind is ResourceKind.NAMESPACE:
            return all(any(path_covers(p, name) for p in paths) for paths in self.namespaces)
        if resource.kind is ResourceKind.PROFILE:
            return self.profiles is None or name in self.profiles
        if resource.kind is ResourceKind.DOMAIN:
            return self.domain is None or name == self.domain
        return not (self.namespaces and resource.kind in _IN_NAMESPACES)

    def names(self, resource: Resource) -> bool:
        """Whether `resource` is a profile or domain that a caveat reaches beside a namespace."""
        if resource.kind is ResourceKind.PROFILE:
            return self.profiles is not None and resource.name in self.profiles
        if resource.kind is ResourceKind.DOMAIN:
            return self.domain is not None and resource.name == self.domain
        return False


def _narrowed(names: frozenset[str] | None, further: tuple[str, ...]) -> frozenset[str]:
    return frozenset(further) if names is None else names.intersection(further)
