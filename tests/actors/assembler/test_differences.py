"""What a context is shown as beside its tokens: a difference from another, and its tree."""

from __future__ import annotations

from itertools import chain, takewhile

import pytest

from protocol.errors import ContentError
from protocol.ids import ContextId
from protocol.messages import assembler as messages
from protocol.messages import ropes
from protocol.tokens import unpack
from tests.assembler_rooms import TALK, ids, shown
from tests.block_samples import Pair, file, model, user
from tests.rooms import (
    PROFILE,
    SECOND,
    Installation,
    Principal,
    assemble,
    assembled,
    new_blocks,
    profile,
)
from tests.ropes_rooms import sequence_id


def stream_of(answer: messages.Assembled) -> list[int]:
    return list(chain.from_iterable(unpack(s.head) + unpack(s.content) for s in answer.segments))


async def diff(principal: Principal, a: ContextId, b: ContextId) -> messages.ContextDifference:
    return await principal.caller.ask(
        "assembler",
        "diff",
        messages.DiffContexts(a=a, b=b),
        messages.ContextDifference,
        delegate=("ropes",),
    )


DIFFERENT: dict[str, tuple[list[Pair], int, str]] = {
    "content": ([*TALK[:1], user("Ho"), *TALK[2:]], 1, "content"),
    "role": ([*TALK[:2], user("Hello!"), *TALK[3:]], 2, "role"),
    "rendering": ([*TALK[:3], file("a\nb\n", "other.txt"), *TALK[4:]], 3, "rendering"),
    "one more": ([*TALK, model("4")], 5, "inserted"),
    "one fewer": (TALK[:4], 4, "removed"),
    "order": ([*TALK[:3], TALK[4], TALK[3]], 3, "order"),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_a_difference_is_told_by_block_reason_and_token(alice: Principal, name: str) -> None:
    pairs, index, reason = DIFFERENT[name]
    a = await assembled(alice, assemble(TALK))
    b = await assembled(alice, assemble(pairs))
    pairwise = zip(stream_of(a), stream_of(b), strict=False)
    token_index = sum(1 for _ in takewhile(lambda two: two[0] == two[1], pairwise))
    assert await diff(alice, a.context, b.context) == messages.ContextDifference(
        equal_blocks=index, contracts=[], index=index, reason=reason, token_index=token_index
    )


async def test_what_is_equal_differs_in_nothing(alice: Principal) -> None:
    a = await assembled(alice, assemble(TALK))
    assert await diff(alice, a.context, a.context) == messages.ContextDifference(
        equal_blocks=len(TALK), contracts=[]
    )


async def test_other_contracts_are_named(alice: Principal) -> None:
    a = await assembled(alice, assemble(TALK))
    b = await assembled(alice, assemble(TALK, template="gemma3-transcript"))
    found = await diff(alice, a.context, b.context)
    assert found.contracts == ["conversation_template", "separator_grammar"]
    assert (found.equal_blocks, found.index, found.reason) == (0, 0, "contract")
    c = await assembled(alice, assemble(TALK, tokens_max=999))
    found = await diff(alice, a.context, c.context)
    assert found == messages.ContextDifference(equal_blocks=5, contracts=["budget_policy"])


async def test_a_context_of_a_profile_that_is_not_here_shows_its_blocks_alone(
    house: Installation, alice: Principal
) -> None:
    answer = await assembled(alice, assemble(TALK, profile="crow"))
    house.profiles = {PROFILE: profile()}
    house.clock.now_ns += SECOND
    await house.restart("assembler")
    assert (await shown(alice, answer.context)).blocks == new_blocks(TALK)
    with pytest.raises(ContentError, match="contracts that no profile here brings"):
        await shown(alice, answer.context, tokens=True)
    with pytest.raises(ContentError, match="no profile 'crow' here; there are: raven"):
        await assembled(alice, assemble(TALK, profile="crow"))


async def test_a_tree_is_the_tree_of_the_contexts_sequence(alice: Principal) -> None:
    answer = await assembled(alice, assemble(TALK))
    tree = await alice.caller.ask(
        "assembler",
        "tree",
        messages.ShowTree(context=answer.context),
        ropes.Tree,
        delegate=("ropes",),
    )
    assert sequence_id(tree.root) == answer.sequence
    assert tree.nodes[0].children == [each.digest for each in ids(TALK)]
