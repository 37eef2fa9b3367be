"""What a handle permits: its own resource, and what its caveats name beside a namespace."""

from __future__ import annotations

import pytest

from protocol.caveats import Caveat, TelemetryCaveat
from protocol.chain import verify_chain
from protocol.errors import CapabilityError
from protocol.handle import Handle
from protocol.resource import ALL, Resource, ResourceKind, Right
from tests.chains import (
    ANCHOR,
    ANCHORS,
    DOMAIN,
    NOW,
    PRINCIPAL,
    PROFILES,
    RIGHTS,
    named,
    namespace,
    nobody,
    principal_chain,
    turn_chain,
)


def handle(chain: tuple[bytes, ...]) -> Handle:
    return verify_chain(chain, ANCHORS, NOW, nobody)


def test_one_chain_carries_a_chat_turn() -> None:
    turn = handle(turn_chain("worker"))
    assert (turn.root, turn.principal, turn.audience) == (
        ANCHOR.public,
        PRINCIPAL.public,
        PRINCIPAL.public,
    )
    assert turn.domain == "alice"
    assert len(turn.lineage) == 2
    assert turn.leaf == turn.lineage[-1]
    for right in (Right.READ, Right.WRITE, Right.ASSEMBLE):
        assert turn.permits(right, namespace("team/alice"))
        assert turn.permits(right, namespace("team/alice/below"))
    assert turn.permits(Right.GENERATE, named(ResourceKind.PROFILE, "small"))
    assert turn.permits(Right.TELEMETRY, named(ResourceKind.DOMAIN, "alice"))


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("right", "resource"),
    [
        (Right.ERASE, namespace("team/alice")),
        (Right.READ, namespace("team")),
        (Right.READ, namespace("team/alice2")),
        (Right.READ, ALL),
        (Right.GENERATE, named(ResourceKind.PROFILE, "vast")),
        (Right.TELEMETRY, named(ResourceKind.DOMAIN, "bob")),
        (Right.READ, named(ResourceKind.SERVICE, "ropes")),
        (Right.READ, named(ResourceKind.SESSION, "team/alice")),
    ],
)
def test_and_nothing_else(right: Right, resource: object) -> None:
    turn = handle(turn_chain("worker"))
    assert not turn.permits(right, resource)  # type: ignore[arg-type]
    with pytest.raises(CapabilityError, match="does not hold") as caught:
        turn.require(right, resource)  # type: ignore[arg-type]
    assert caught.value.step == "scope"


def test_without_caveats_a_namespace_reaches_no_profile_and_no_domain() -> None:
    bare = handle(principal_chain(caveats=()))
    assert bare.domain is None
    assert not bare.permits(Right.GENERATE, named(ResourceKind.PROFILE, "small"))
    assert not bare.permits(Right.TELEMETRY, named(ResourceKind.DOMAIN, "alice"))
    bare.require(Right.READ, namespace("team/alice"))


def test_all_reaches_everything_that_no_caveat_excludes() -> None:
    whole = handle(principal_chain(resource=ALL, caveats=()))
    narrowed = handle(principal_chain(resource=ALL, caveats=(DOMAIN, PROFILES)))
    for kind, name, also_narrowed in (
        (ResourceKind.PROFILE, "small", True),
        (ResourceKind.PROFILE, "vast", False),
        (ResourceKind.DOMAIN, "alice", True),
        (ResourceKind.DOMAIN, "bob", False),
        (ResourceKind.SESSION, "s", True),
    ):
        for right in RIGHTS:
            assert whole.permits(right, named(kind, name))
            assert narrowed.permits(right, named(kind, name)) == also_narrowed
    assert whole.permits(Right.READ, ALL)
    assert not narrowed.permits(Right.READ, ALL)
    assert not whole.permits(Right.ERASE, ALL)


def test_a_handle_on_one_profile_is_on_that_profile() -> None:
    one = handle(
        principal_chain(resource=named(ResourceKind.PROFILE, "small"), caveats=(PROFILES,))
    )
    assert one.permits(Right.GENERATE, named(ResourceKind.PROFILE, "small"))
    assert not one.permits(Right.GENERATE, named(ResourceKind.PROFILE, "large"))


PUBLIC = TelemetryCaveat(names=("public",))


@pytest.mark.req("AUT-1", "AUT-7")
@pytest.mark.parametrize(
    ("resource", "caveats", "rights", "seen"),
    [
        (namespace("team/alice"), (DOMAIN, PROFILES), RIGHTS, {"alice"}),
        (namespace("team/alice"), (DOMAIN, PUBLIC), RIGHTS, {"alice", "public"}),
        (namespace("team/alice"), (DOMAIN, PUBLIC), (Right.READ,), set()),
        (namespace("team/alice"), (PUBLIC,), RIGHTS, {"public"}),
        (namespace("team/alice"), (), RIGHTS, set()),
        (ALL, (), RIGHTS, {"alice", "bob", "public"}),
        (ALL, (PUBLIC,), RIGHTS, {"public"}),
        (ALL, (DOMAIN,), RIGHTS, {"alice"}),
        (ALL, (DOMAIN, PUBLIC), RIGHTS, {"alice", "public"}),
        (named(ResourceKind.DOMAIN, "bob"), (), RIGHTS, {"bob"}),
        (
            namespace("team/alice"),
            (DOMAIN, PUBLIC, TelemetryCaveat(names=("bob",))),
            RIGHTS,
            {"alice"},
        ),
    ],
)
def test_whose_reuse_a_handle_is_told_of(
    resource: Resource, caveats: tuple[Caveat, ...], rights: tuple[Right, ...], seen: set[str]
) -> None:
    holder = handle(principal_chain(resource=resource, caveats=caveats, rights=rights))
    assert {name for name in ("alice", "bob", "public") if holder.sees(name)} == seen
    # It is telemetry, and nothing else, that the caveat reaches.
    for right in RIGHTS:
        if resource.kind is ResourceKind.NAMESPACE:
            assert not holder.permits(right, named(ResourceKind.DOMAIN, "public"))
