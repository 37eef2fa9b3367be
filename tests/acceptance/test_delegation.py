"""Random trees of delegation: a handle does what every link above it allows, and nothing else.

What is wanted is computed by an oracle of its own (`tests/delegation_trees.py`), at the very edges
of the links' times. Revoking is done through an authority room, and what is left is asked of
another room: taking back a handle takes away exactly what lies below it. An oracle that is blind to
one thing is found to be wrong. `HYPOTHESIS_PROFILE=fuzz` grows many more trees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.chain import verify_chain
from protocol.errors import CapabilityError, InvocationError
from protocol.handle import Handle
from protocol.invocation import invoke, verify_invocation
from protocol.nonces import NonceWindow
from protocol.resource import Right
from tests import delegation_forest
from tests.chains import ANCHORS, NOW, nobody, nonce
from tests.delegation_trees import (
    ASPECTS,
    DOMAINS,
    OPERATIONS,
    RESOURCES,
    RIGHTS,
    SERVICES,
    Node,
    Oracle,
    edges,
    trees,
)

# Each example signs and verifies some hundred times.
some: Final = settings(max_examples=max(1, settings().max_examples * 2 // 5))
asked: Final = st.tuples(*map(st.sampled_from, ((*RIGHTS, Right.ERASE), SERVICES, OPERATIONS)))
Asked = tuple[Right, str, str]
# The step of a refusal; or what may be asked, what may be done to what, and what is told.
Answers = str | tuple[list[bool], list[bool], list[bool]]


def verified(node: Node, now_ns: int) -> Handle | str:
    """What a room takes the node's chain for, or the step at which it refuses it."""
    try:
        return verify_chain(node.chain, ANCHORS, now_ns, nobody)
    except CapabilityError as error:
        return error.step


def admitted(node: Node, handle: Handle, question: Asked, now_ns: int) -> bool:
    """Whether the room lets the holder ask that."""
    right, service, op = question
    sent = invoke(
        node.holder,
        cap=handle.leaf,
        service=service,
        op=op,
        args=b"",
        ts_ns=now_ns,
        nonce=nonce(1),
    )
    try:
        verify_invocation(
            sent,
            handle,
            service=service,
            op=op,
            op_to_right={op: right},
            args=b"",
            now_ns=now_ns,
            nonces=NonceWindow(now_ns),
        )
    except InvocationError:
        return False
    return True


def done(node: Node, questions: Sequence[Asked], now_ns: int) -> Answers:
    """What a room lets the holder of the node do now."""
    handle = verified(node, now_ns)
    if isinstance(handle, str):
        return handle
    return (
        [admitted(node, handle, question, now_ns) for question in questions],
        [handle.permits(right, resource) for right in RIGHTS for resource in RESOURCES],
        [handle.sees(domain) for domain in DOMAINS],
    )


def wanted(node: Node, questions: Sequence[Asked], now_ns: int, oracle: Oracle) -> Answers:
    """What the oracle says of that."""
    grants = node.grants
    if not oracle.sound(grants):
        return "attenuation.depth"
    if not oracle.current(grants, now_ns):
        return "time"
    return (
        [oracle.admits(grants, *question) for question in questions],
        [oracle.permits(grants, right, resource) for right in RIGHTS for resource in RESOURCES],
        [oracle.sees(grants, domain) for domain in DOMAINS],
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Node], list[Asked], list[int]]:
    """A tree, what is asked of each of its handles, and when."""
    tree = draw(trees())
    questions = draw(st.lists(asked, min_size=6, max_size=6))
    times = draw(st.lists(st.sampled_from(edges(tree)), min_size=1, max_size=2))
    return tree, questions, [NOW, *times]


@pytest.mark.req("AUT-1", "AUT-5", "AUT-7")
def test_a_handle_does_exactly_what_every_link_above_it_allows() -> None:
    """And, for the control, an oracle that ignores any one thing is found to be wrong."""
    wrong: set[str] = set()

    @some
    @given(plans())
    def follow_one(plan: tuple[list[Node], list[Asked], list[int]]) -> None:
        tree, questions, times = plan
        for node, now_ns in product(tree, times):
            found = done(node, questions, now_ns)
            assert found == wanted(node, questions, now_ns, Oracle())
            for aspect in set(ASPECTS) - wrong:
                if found != wanted(node, questions, now_ns, Oracle(aspect)):
                    wrong.add(aspect)

    follow_one()
    assert wrong == set(ASPECTS)


@pytest.mark.req("AUT-4")
def test_revoking_takes_away_exactly_what_lies_below() -> None:
    """One after the other, by whoever lies above it and can ask, at any time; the principal's own
    too. Who may not take it back takes nothing. An oracle that takes along nothing, or only the
    handle itself, or all of them, is found to be wrong."""
    wrong: set[str] = set()

    @some
    @given(delegation_forest.plans())
    def follow_one(plan: delegation_forest.Plan) -> None:
        wrong.update(asyncio.run(delegation_forest.follow(plan)))

    follow_one()
    assert wrong == set(delegation_forest.REVOKING)
