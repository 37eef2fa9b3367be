"""Handles: what a verified chain allows its holder. Rooms read resources only through one."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.caveats import Scope
from protocol.errors import CapabilityError
from protocol.ids import CapabilityId
from protocol.resource import Resource, ResourceKind, Right


@dataclass(frozen=True, slots=True)
class Handle:
    """The effect of one chain, made by `verify_chain` alone.

    `lineage` are the ids of its links, root first; invocations name the last. `root` is the
    anchor's key, `principal` the key that the anchor granted to, `audience` the key that has to
    sign invocations. Holds from `nbf_ns` until just before `exp_ns`.
    """

    lineage: tuple[CapabilityId, ...]
    root: bytes
    principal: bytes
    audience: bytes
    resource: Resource
    rights: frozenset[Right]
    scope: Scope
    nbf_ns: int
    exp_ns: int

    @property
    def leaf(self) -> CapabilityId:
        return self.lineage[-1]

    @property
    def domain(self) -> str | None:
        """The principal's computation-sharing domain; None: it may not compute in any."""
        return self.scope.domain

    def permits(self, right: Right, resource: Resource) -> bool:
        """Whether the holder may do `right` to `resource`: the one question that a room asks.

        The handle's own resource has to cover it, or, for a handle on a namespace, a caveat has
        to name it (a profile, the domain); and no caveat may exclude it.
        """
        if right not in self.rights or not self.scope.admits(resource):
            return False
        return self.resource.covers(resource) or (
            self.resource.kind is ResourceKind.NAMESPACE and self.scope.names(resource)
        )

    def sees(self, domain: str) -> bool:
        """Whether the holder may be told what was reused in `domain`: whether it has `telemetry`
        there, by a caveat that names it or, where none names any, as `permits` says."""
        named = self.scope.telemetry
        if named is not None and domain != self.scope.domain:
            return Right.TELEMETRY in self.rights and domain in named
        return self.permits(Right.TELEMETRY, Resource(kind=ResourceKind.DOMAIN, name=domain))

    def require(self, right: Right, resource: Resource) -> None:
        """Raises CapabilityError with step `scope` unless the handle permits it.

        For resources that the caller may know about (its own profile, a service). What must not
        be told from a thing that does not exist is asked with `permits` and answered NotVisible.
        """
        if not self.permits(right, resource):
            raise CapabilityError(
                "scope", f"the handle does not hold '{right.value}' on '{resource}'"
            )
