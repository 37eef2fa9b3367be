"""Random trees of delegation, and an oracle that computes what each handle in them may do.

The oracle never calls the code of chains, caveats, resources or handles: it keeps, for each node,
what its issuer wrote down, and asks of every link from the root to the leaf whether that link would
allow it. `ignoring` makes it blind to one thing, for the control that this is found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from protocol.capability import attenuate, decode_link, issue
from protocol.caveats import (
    Caveat,
    DomainCaveat,
    NamespaceCaveat,
    OperationCaveat,
    ProfileCaveat,
    ServiceCaveat,
    TelemetryCaveat,
)
from protocol.ids import CapabilityId
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.chains import ANCHOR, NOW, SECOND, Chain, forged, named, namespace, nonce

PATHS: Final = ("team", "team/a", "team/a/b", "team/ab", "team/a/b/c", "other", "te")
PROFILES: Final = ("large", "other", "small")
DOMAINS: Final = ("alice", "bob", "public")
RIGHTS: Final = (Right.READ, Right.WRITE, Right.ASSEMBLE, Right.GENERATE, Right.TELEMETRY)
SERVICES: Final = ("authority", "ropes", "worker")
OPERATIONS: Final = ("get", "show", "take_back")
RESOURCES: Final = (
    ALL,
    *(namespace(path) for path in PATHS),
    *(named(ResourceKind.PROFILE, name) for name in PROFILES),
    *(named(ResourceKind.DOMAIN, name) for name in DOMAINS),
    named(ResourceKind.SERVICE, "worker"),
    named(ResourceKind.SESSION, "s1"),
    named(ResourceKind.SOURCE, "s1"),
)
LINKS_MAX: Final = 8
NODES_MAX: Final = 12
KEYS: Final = [Signer(bytes([40 + number]) * 32) for number in range(NODES_MAX)]
# What an oracle of these trees can be blind to.
ASPECTS: Final = (
    "nbf",
    "exp",
    "depth",
    "rights",
    "resource",
    "services",
    "operations",
    "profiles",
    "telemetry",
    "domain",
    "below",
)
_STARTS_S: Final = (-1800, 0, 20)
_ENDS_S: Final = (20, 60, 1800)


@dataclass(frozen=True)
class Grant:
    """What one issuer wrote down, as the oracle keeps it. None: it says nothing of that."""

    resource: Resource
    rights: frozenset[Right]
    nbf_ns: int
    exp_ns: int
    depth_left: int
    services: frozenset[str] | None = None
    operations: frozenset[str] | None = None
    profiles: frozenset[str] | None = None
    telemetry: frozenset[str] | None = None
    domain: str | None = None
    below: frozenset[str] | None = None


@dataclass(frozen=True)
class Node:
    """One handle: its chain, the key that holds it, and what each of its links grants."""

    chain: Chain
    holder: Signer
    grants: tuple[Grant, ...]
    parent: int | None

    @property
    def id(self) -> CapabilityId:
        return decode_link(self.chain[-1]).id

    def __repr__(self) -> str:
        last = self.grants[-1]
        times = [(time - NOW) // SECOND for time in (last.nbf_ns, last.exp_ns)]
        rights = [right.value for right in sorted(last.rights)]
        lists = last.services, last.operations, last.profiles, last.telemetry, last.below
        rest = last.depth_left, last.domain, [names and sorted(names) for names in lists]
        return f"<below {self.parent}: {last.resource}, {rights}, {times} s, {rest}>"


@dataclass(frozen=True)
class Oracle:
    """What a chain of these grants may do, root first: what all of them allow."""

    ignoring: str | None = None

    def sound(self, grants: Sequence[Grant]) -> bool:
        """Whether each link lets so many follow as do follow, and as these say may follow."""
        return self.ignoring == "depth" or all(
            upper.depth_left - (at - number) >= grants[at].depth_left
            for at in range(len(grants))
            for number, upper in enumerate(grants[:at])
        )

    def current(self, grants: Sequence[Grant], now_ns: int) -> bool:
        """Whether every link holds now: from its beginning on, and not at its end any more."""
        return all(
            (self.ignoring == "nbf" or each.nbf_ns <= now_ns)
            and (self.ignoring == "exp" or now_ns < each.exp_ns)
            for each in grants
        )

    def admits(self, grants: Sequence[Grant], right: Right, service: str, op: str) -> bool:
        """Whether every link lets `op`, which needs `right`, be asked of the room `service`."""
        return all(
            self._has(each, right)
            and (self.ignoring == "services" or _in(service, each.services))
            and (self.ignoring == "operations" or _in(op, each.operations))
            for each in grants
        )

    def permits(self, grants: Sequence[Grant], right: Right, resource: Resource) -> bool:
        """Whether every link lets `right` be done to `resource`. Beside a namespace that is what
        some link names, and no link leaves out."""
        for each in grants:
            beside = each.resource.kind is ResourceKind.NAMESPACE and self._named(grants, resource)
            reached = self.ignoring == "resource" or _covers(each.resource, resource)
            if not (reached or beside) or not self._has(each, right):
                return False
            if self._left_out(each, resource):
                return False
        return True

    def sees(self, grants: Sequence[Grant], domain: str) -> bool:
        """Whether every handle on the way to this one would be told of reuse in `domain`."""
        return all(self._sees(grants[: at + 1], domain) for at in range(len(grants)))

    def _sees(self, grants: Sequence[Grant], domain: str) -> bool:
        lists = [each.telemetry for each in grants if each.telemetry is not None]
        own = any(each.domain == domain for each in grants)
        if lists and not own and self.ignoring != "telemetry":
            told = all(domain in names for names in lists)
            return told and all(self._has(each, Right.TELEMETRY) for each in grants)
        return self.permits(grants, Right.TELEMETRY, named(ResourceKind.DOMAIN, domain))

    def _has(self, grant: Grant, right: Right) -> bool:
        return self.ignoring == "rights" or right in grant.rights

    def _named(self, grants: Sequence[Grant], resource: Resource) -> bool:
        if resource.kind is ResourceKind.PROFILE:
            return any(each.profiles is not None for each in grants)
        if resource.kind is ResourceKind.DOMAIN:
            return any(each.domain is not None for each in grants)
        return False

    def _left_out(self, grant: Grant, resource: Resource) -> bool:
        below = None if self.ignoring == "below" else grant.below
        profiles = None if self.ignoring == "profiles" else grant.profiles
        domain = None if self.ignoring == "domain" else grant.domain
        match resource.kind:
            case ResourceKind.ALL:
                return below is not None or profiles is not None or domain is not None
            case ResourceKind.NAMESPACE:
                return below is not None and not _within(str(resource.name), below)
            case ResourceKind.PROFILE:
                return not _in(str(resource.name), profiles)
            case ResourceKind.DOMAIN:
                return domain is not None and resource.name != domain
            case ResourceKind.SERVICE:
                return False
            case _:
                return below is not None


def _in(name: str, names: frozenset[str] | None) -> bool:
    return names is None or name in names


def _within(path: str, roots: Collection[str]) -> bool:
    parts = path.split("/")
    return any(parts[: len(root.split("/"))] == root.split("/") for root in roots)


def _covers(whole: Resource, part: Resource) -> bool:
    if whole.kind is ResourceKind.ALL:
        return True
    if whole.kind is not part.kind:
        return False
    if whole.kind is ResourceKind.NAMESPACE:
        return _within(str(part.name), {str(whole.name)})
    return whole.name == part.name


def _some(names: Sequence[str]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(names), min_size=1)


def _caveats(grant: Grant) -> list[Caveat]:
    made: list[Caveat] = []
    if grant.services is not None:
        made.append(ServiceCaveat(names=tuple(sorted(grant.services))))
    if grant.operations is not None:
        made.append(OperationCaveat(names=tuple(sorted(grant.operations))))
    if grant.profiles is not None:
        made.append(ProfileCaveat(names=tuple(sorted(grant.profiles))))
    if grant.telemetry is not None:
        made.append(TelemetryCaveat(names=tuple(sorted(grant.telemetry))))
    if grant.domain is not None:
        made.append(DomainCaveat(name=grant.domain))
    if grant.below is not None:
        made.append(NamespaceCaveat(paths=tuple(sorted(grant.below))))
    return made


@st.composite
def roots(draw: st.DrawFn, anchor: Signer, holder: Signer) -> Node:
    """A grant of the anchor's, on anything; most of them on all or on a namespace."""
    wide = [ALL, namespace("team")] * 2 * len(RESOURCES)
    grant = Grant(
        resource=draw(st.sampled_from([*wide, *RESOURCES])),
        rights=frozenset(RIGHTS),
        nbf_ns=NOW + draw(st.sampled_from(_STARTS_S[:2])) * SECOND,
        exp_ns=NOW + 1800 * SECOND,
        depth_left=draw(st.sampled_from([7, 7, 2, 0])),
        profiles=draw(_some(PROFILES)),
        telemetry=draw(_some(DOMAINS)),
        domain=draw(st.none() | st.sampled_from(DOMAINS)),
    )
    chain = issue(
        anchor,
        audience=holder.public,
        resource=grant.resource,
        rights=grant.rights,
        caveats=_caveats(grant),
        nbf_ns=grant.nbf_ns,
        exp_ns=grant.exp_ns,
        nonce=nonce(1),
        depth_left=grant.depth_left,
    )
    return Node(chain, holder, (grant,), None)


@st.composite
def _grants(draw: st.DrawFn, above: tuple[Grant, ...]) -> Grant:
    """What may be written below these: a part of the last one's rights, resource and time, and any
    caveats but those that name what it does not reach. Sometimes it lets too many links follow."""
    parent = above[-1]
    on_all = parent.resource.kind is ResourceKind.ALL
    domains = {each.domain for each in above} - {None}
    telemetry = any(each.telemetry is not None for each in above)
    told = [name for name in DOMAINS if all(_in(name, each.telemetry) for each in above)]
    profiles = any(each.profiles is not None for each in above)
    starts = {parent.nbf_ns, *(NOW + second * SECOND for second in _STARTS_S)}
    ends = {parent.exp_ns, *(NOW + second * SECOND for second in _ENDS_S)}
    later = sorted(time for time in starts if parent.nbf_ns <= time < parent.exp_ns)
    nbf_ns = draw(st.sampled_from([parent.nbf_ns] * 3 + later))
    return Grant(
        resource=draw(st.sampled_from([r for r in RESOURCES if _covers(parent.resource, r)])),
        rights=draw(st.frozensets(st.sampled_from(sorted(parent.rights)), min_size=1)),
        nbf_ns=nbf_ns,
        exp_ns=draw(st.sampled_from(sorted(n for n in ends if nbf_ns < n <= parent.exp_ns))),
        depth_left=draw(st.sampled_from([max(0, parent.depth_left - 1)] * 9 + [0, 1, 7])),
        services=draw(_some(SERVICES)),
        operations=draw(_some(OPERATIONS)),
        profiles=draw(_some(PROFILES)) if profiles or on_all else None,
        telemetry=draw(_some(DOMAINS)) if telemetry or (on_all and not domains) else None,
        domain=draw(st.none() | st.sampled_from(told)) if on_all and told and not domains else None,
        below=draw(_some(PATHS)),
    )


def below(at: int, parent: Node, grant: Grant, holder: Signer) -> Node:
    """`grant`, as the holder of `parent` (the node `at`) signs it to the next holder. One that lets
    too many links follow is refused where it is made, and then signed with no check at all."""
    fields: dict[str, Any] = {
        "audience": holder.public,
        "resource": grant.resource,
        "rights": grant.rights,
        "nbf_ns": grant.nbf_ns,
        "exp_ns": grant.exp_ns,
        "nonce": nonce(at + 2),
        "depth_left": grant.depth_left,
    }
    upper = decode_link(parent.chain[-1])
    grants = (*parent.grants, grant)
    if Oracle().sound(grants):
        chain = attenuate(parent.chain, parent.holder, caveats=_caveats(grant), **fields)
        return Node(chain, holder, grants, at)
    caveats = [*upper.capability.caveats, *_caveats(grant)]
    (free,) = issue(parent.holder, caveats=caveats, **fields)
    link = forged(free, parent.holder, sub=upper.capability.sub, parent=upper.id)
    return Node((*parent.chain, link), holder, grants, at)


@st.composite
def trees(draw: st.DrawFn, *, first: Node | None = None, anchor: Signer = ANCHOR) -> list[Node]:
    """Up to 12 handles, each given under an earlier one to a key of its own: below `first`, if
    there is one, and below a root of any kind that `anchor` grants."""
    nodes = [] if first is None else [first]
    nodes.append(draw(roots(anchor, KEYS[len(nodes)])))
    for number in range(len(nodes), draw(st.integers(3, NODES_MAX))):
        # Mostly one under which another may be given.
        fit = [
            at
            for at, node in enumerate(nodes)
            if node.grants[-1].depth_left and Oracle().sound(node.grants)
        ]
        at = draw(st.sampled_from([*range(len(nodes)), *fit * 4]))
        if len(nodes[at].chain) < LINKS_MAX:
            grant = draw(_grants(nodes[at].grants))
            nodes.append(below(at, nodes[at], grant, KEYS[number]))
    return nodes


def edges(tree: Sequence[Node]) -> list[int]:
    """The times at which something of it begins or ends, and the last before each."""
    times = {time for node in tree for each in node.grants for time in (each.nbf_ns, each.exp_ns)}
    return sorted({NOW, *times, *(time - 1 for time in times)})
