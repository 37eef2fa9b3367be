"""Random trees of delegation: a handle does what every link above it allows, and nothing else.

The oracle never calls the chain's own code: it keeps, for each node, what its issuer wrote down,
and asks of every link from the root to the leaf whether that link alone would allow it. Revoking a
node takes away exactly what lies below it. `HYPOTHESIS_PROFILE=fuzz` grows many more trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.capability import Capability, attenuate, decode_link
from protocol.caveats import (
    Caveat,
    DomainCaveat,
    NamespaceCaveat,
    OperationCaveat,
    ProfileCaveat,
    ServiceCaveat,
)
from protocol.chain import ChainCache, verify_chain
from protocol.errors import CapabilityError, InvocationError
from protocol.handle import Handle
from protocol.ids import CapabilityId
from protocol.invocation import invoke, verify_invocation
from protocol.nonces import NonceWindow
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer
from tests.chains import ANCHORS, NOW, SECOND, namespace, nobody, nonce, principal_chain

# A right, a path, a room and its operation.
Question = tuple[Right, str, str, str]

ROOT_PATH: Final = "team"
PATHS: Final = ("team", "team/a", "team/a/b", "team/ab", "team/a/b/c", "other", "te")
RIGHTS: Final = (Right.READ, Right.WRITE, Right.ASSEMBLE, Right.GENERATE)
SERVICES: Final = ("ropes", "assembler", "worker")
OPERATIONS: Final = ("get", "commit", "show")
PROFILES: Final = ("large", "small")
# Each example signs and verifies some hundred times.
some: Final = settings(max_examples=max(1, settings.default.max_examples // 4))
KEYS: Final = [Signer(bytes([40 + number]) * 32) for number in range(24)]


@dataclass(frozen=True)
class Grant:
    """What one issuer wrote down, as the oracle keeps it. None: it says nothing of that."""

    path: str
    rights: frozenset[Right]
    ends_ns: int
    services: frozenset[str] | None = None
    operations: frozenset[str] | None = None
    profiles: frozenset[str] | None = None
    below: frozenset[str] | None = None

    def allows(self, right: Right, path: str, service: str, op: str, now_ns: int) -> bool:
        """Whether this link alone lets its holder do that."""
        return (
            right in self.rights
            and _within(path, {self.path})
            and now_ns < self.ends_ns
            and (self.services is None or service in self.services)
            and (self.operations is None or op in self.operations)
            and (self.below is None or _within(path, self.below))
        )


@dataclass(frozen=True)
class Node:
    """One handle: its chain, the key that holds it, and what each of its links grants."""

    chain: tuple[bytes, ...]
    holder: Signer
    grants: tuple[Grant, ...]
    parent: int | None

    @property
    def id(self) -> CapabilityId:
        return decode_link(self.chain[-1]).id


def _within(path: str, roots: frozenset[str] | set[str]) -> bool:
    parts = path.split("/")
    return any(parts[: len(root.split("/"))] == root.split("/") for root in roots)


def root() -> Node:
    chain = principal_chain(
        audience=KEYS[0].public,
        resource=namespace(ROOT_PATH),
        rights=RIGHTS,
        caveats=(DomainCaveat(name="alice"), ProfileCaveat(names=PROFILES)),
    )
    whole = Grant(ROOT_PATH, frozenset(RIGHTS), NOW + 1800 * SECOND, profiles=frozenset(PROFILES))
    return Node(chain, KEYS[0], (whole,), None)


def _some(names: tuple[str, ...]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(names), min_size=1)


@st.composite
def grants(draw: st.DrawFn, parent: Grant) -> Grant:
    """What may be written below `parent`: a part of its rights and its path, and any caveats."""
    return Grant(
        path=draw(st.sampled_from([each for each in PATHS if _within(each, {parent.path})])),
        rights=draw(st.frozensets(st.sampled_from(sorted(parent.rights)), min_size=1)),
        ends_ns=min(parent.ends_ns, NOW + draw(st.sampled_from([-1, 60, 1800])) * SECOND),
        services=draw(_some(SERVICES)),
        operations=draw(_some(OPERATIONS)),
        profiles=draw(_some(PROFILES)),
        below=draw(_some(PATHS)),
    )


def caveats(grant: Grant) -> list[Caveat]:
    made: list[Caveat] = []
    lists: list[tuple[Callable[..., Caveat], frozenset[str] | None]] = [
        (ServiceCaveat, grant.services),
        (OperationCaveat, grant.operations),
        (ProfileCaveat, grant.profiles),
    ]
    for kind, names in lists:
        if names is not None:
            made.append(kind(names=tuple(sorted(names))))
    if grant.below is not None:
        made.append(NamespaceCaveat(paths=tuple(sorted(grant.below))))
    return made


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    """Up to 12 handles, each given under an earlier one to a key of its own."""
    nodes = [root()]
    for number in range(1, draw(st.integers(2, 12))):
        at = draw(st.integers(0, len(nodes) - 1))
        parent = nodes[at]
        if len(parent.chain) == 8:
            continue
        grant = draw(grants(parent.grants[-1]))
        if grant.ends_ns <= NOW - 1800 * SECOND:
            continue
        chain = attenuate(
            parent.chain,
            parent.holder,
            audience=KEYS[number].public,
            nonce=nonce(number),
            resource=namespace(grant.path),
            rights=grant.rights,
            caveats=caveats(grant),
            exp_ns=grant.ends_ns,
        )
        nodes.append(Node(chain, KEYS[number], (*parent.grants, grant), at))
    return nodes


def verified(node: Node) -> Handle | None:
    """What a room takes the node's chain for; None: it refuses it."""
    try:
        return verify_chain(node.chain, ANCHORS, NOW, nobody)
    except CapabilityError:
        return None


def does(node: Node, handle: Handle | None, question: Question) -> bool:
    """Whether a room would do it: chain, invocation, and the one question about the resource."""
    if handle is None:
        return False
    right, path, service, op = question
    try:
        verify_invocation(
            invoke(
                node.holder,
                cap=handle.leaf,
                service=service,
                op=op,
                args=b"",
                ts_ns=NOW,
                nonce=nonce(1),
            ),
            handle,
            service=service,
            op=op,
            op_to_right={op: right},
            args=b"",
            now_ns=NOW,
            nonces=NonceWindow(NOW),
        )
    except InvocationError:
        return False
    return handle.permits(right, namespace(path))


asked: Final[st.SearchStrategy[Any]] = st.tuples(
    st.sampled_from([*RIGHTS, Right.ERASE]),
    st.sampled_from(PATHS),
    st.sampled_from(SERVICES),
    st.sampled_from(OPERATIONS),
)


@pytest.mark.req("AUT-1")
@some
@given(trees(), st.lists(asked, min_size=5, max_size=5))
def test_a_handle_does_exactly_what_every_link_above_it_allows(
    tree: list[Node], questions: list[Question]
) -> None:
    for node in tree:
        handle = verified(node)
        for right, path, service, op in questions:
            wanted = all(each.allows(right, path, service, op, NOW) for each in node.grants)
            assert does(node, handle, (right, path, service, op)) is wanted


@pytest.mark.req("AUT-1", "AUT-5")
@some
@given(trees())
def test_a_handle_reaches_the_profiles_that_every_link_names_and_the_one_domain(
    tree: list[Node],
) -> None:
    for node in tree:
        if any(each.ends_ns <= NOW for each in node.grants):
            continue
        handle = verify_chain(node.chain, ANCHORS, NOW, nobody)
        for name in (*PROFILES, "other"):
            named = all(each.profiles is None or name in each.profiles for each in node.grants)
            for right in RIGHTS:
                wanted = name != "other" and named and right in node.grants[-1].rights
                resource = Resource(kind=ResourceKind.PROFILE, name=name)
                assert handle.permits(right, resource) is wanted
        assert handle.domain == "alice"


@pytest.mark.req("AUT-4")
@some
@given(trees(), st.data())
def test_revoking_a_node_takes_away_exactly_its_subtree(tree: list[Node], data: Any) -> None:
    """Also with verdicts remembered from before, at the epoch after it."""
    at = data.draw(st.integers(0, len(tree) - 1))
    below = {at}
    for number, node in enumerate(tree):
        if node.parent in below:
            below.add(number)
    revoked = {tree[at].id}

    def is_revoked(link: CapabilityId, _: Capability) -> bool:
        return link in revoked

    cache = ChainCache(ANCHORS)
    for number, node in enumerate(tree):
        alive = all(each.ends_ns > NOW for each in node.grants)
        if alive:
            cache.verify(node.chain, now_ns=NOW, epoch=0, is_revoked=nobody)
        for epoch in (0, 1):
            try:
                cache.verify(node.chain, now_ns=NOW, epoch=epoch, is_revoked=is_revoked)
                step = None
            except CapabilityError as error:
                step = error.step
            wanted = None if number not in below else "revocation"
            assert step == (wanted if alive else "time")
