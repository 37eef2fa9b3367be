"""Over budget is an error with both numbers, or whole turns go, and the result says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.assembly import BudgetPolicy
from protocol.blocks import ContextBlock, Role
from protocol.budget import Budgeted, turns, within_budget
from protocol.errors import BudgetExceeded, ContentError
from protocol.grammar import BlockTokens, Grammar, State
from protocol.grammars import GRAMMARS, grammar
from protocol.grammars.tools import call_block, result_block
from protocol.transform import fold_to_state
from tests.block_samples import Pair, conversations, file, model, system, user
from tests.fake_tokenizer import FakeTokenizer

_CHAT = grammar("gemma3-it", FakeTokenizer())


def _policy(
    tokens_max: int,
    *,
    keep_turns: int = 1,
    policy: Literal["refuse", "drop-oldest-turns"] = "drop-oldest-turns",
) -> BudgetPolicy:
    return BudgetPolicy(
        v=1, kind="budget", policy=policy, tokens_max=tokens_max, keep_turns=keep_turns
    )


def _stepper(
    built: Grammar, pairs: list[Pair]
) -> Callable[[State, int], tuple[BlockTokens, State]]:
    return lambda state, index: built.step(state, *pairs[index])


def _apply(policy: BudgetPolicy, pairs: list[Pair], built: Grammar = _CHAT) -> Budgeted:
    blocks: list[ContextBlock] = [block for block, _ in pairs]
    return within_budget(policy, built, blocks, _stepper(built, pairs))


def _tokens(built: Grammar, pairs: list[Pair]) -> int:
    stream, state = fold_to_state(built, pairs)
    return sum(len(tokens.ids) for tokens in stream) + len(built.opener(state))


_CONVERSATION = [
    system("be kind"),
    user("one"),
    model("two"),
    file("notes"),
    user("three"),
    call_block("t", "{}"),
    result_block("four"),
    model("five"),
    system("be brief"),
    user("six"),
]


def test_turns_keep_questions_with_what_they_brought_and_what_answered_them() -> None:
    assert turns([block for block, _ in _CONVERSATION]) == [[1, 2], [3, 4, 5, 6, 7], [9]]
    assert turns([]) == []
    assert turns([block for block, _ in [model("a"), user("b")]]) == [[0], [1]]


def test_within_budget_nothing_is_dropped() -> None:
    total = _tokens(_CHAT, _CONVERSATION)
    whole = _apply(_policy(total), _CONVERSATION)
    assert whole.dropped == ()
    assert whole.kept == tuple(range(len(_CONVERSATION)))
    assert whole.tokens == total
    assert whole.stream == fold_to_state(_CHAT, _CONVERSATION)[0]


@pytest.mark.req("ASM-7")
def test_refuse_names_both_numbers() -> None:
    total = _tokens(_CHAT, _CONVERSATION)
    with pytest.raises(BudgetExceeded, match=f"is {total} tokens.*budget is {total - 1}") as caught:
        _apply(_policy(total - 1, policy="refuse"), _CONVERSATION)
    assert caught.value.details == {"tokens": total, "tokens_max": total - 1}


@pytest.mark.req("ASM-7")
def test_the_oldest_turn_goes_whole_and_trusted_system_blocks_stay() -> None:
    total = _tokens(_CHAT, _CONVERSATION)
    cut = _apply(_policy(total - 1), _CONVERSATION)
    assert cut.dropped == (1, 2)
    assert cut.kept == (0, 3, 4, 5, 6, 7, 8, 9)
    rest = [_CONVERSATION[index] for index in cut.kept]
    assert (cut.stream, cut.tokens) == (fold_to_state(_CHAT, rest)[0], _tokens(_CHAT, rest))


@pytest.mark.req("ASM-7")
def test_what_must_stay_and_does_not_fit_is_an_error_with_both_numbers() -> None:
    least = [_CONVERSATION[index] for index in (0, 8, 9)]
    tokens = _tokens(_CHAT, least)
    assert _apply(_policy(tokens), _CONVERSATION).kept == (0, 8, 9)
    with pytest.raises(BudgetExceeded, match="after 7 blocks") as caught:
        _apply(_policy(tokens - 1), _CONVERSATION)
    assert caught.value.details == {"tokens": tokens, "tokens_max": tokens - 1}
    with pytest.raises(BudgetExceeded, match="last 3 turns"):
        _apply(_policy(tokens, keep_turns=3), _CONVERSATION)


@pytest.mark.parametrize(("tokens_max", "keep_turns"), [(0, 1), (10, 0), (10, -1)])
def test_a_policy_that_could_drop_everything_is_refused(tokens_max: int, keep_turns: int) -> None:
    with pytest.raises(ContentError, match="keeps at least one turn"):
        _apply(_policy(tokens_max, keep_turns=keep_turns), _CONVERSATION)


@pytest.mark.req("ASM-7")
@pytest.mark.parametrize("name", GRAMMARS)
@given(pairs=conversations, tokens_max=st.integers(1, 400), keep_turns=st.integers(1, 3))
def test_never_a_silent_cut(name: str, pairs: list[Pair], tokens_max: int, keep_turns: int) -> None:
    """The oracle tries every number of oldest turns, each with a fold from the beginning."""
    built = grammar(name, FakeTokenizer())
    groups = turns([block for block, _ in pairs])
    expected = None
    for count in range(max(0, len(groups) - keep_turns) + 1):
        dropped = tuple(index for group in groups[:count] for index in group)
        rest = [pair for index, pair in enumerate(pairs) if index not in dropped]
        if _tokens(built, rest) <= tokens_max:
            expected = dropped
            break
    policy = _policy(tokens_max, keep_turns=keep_turns)
    if expected is None:
        with pytest.raises(BudgetExceeded):
            _apply(policy, pairs, built)
        return
    found = _apply(policy, pairs, built)
    rest = [pairs[index] for index in found.kept]
    assert found.dropped == expected
    assert sorted(found.kept + found.dropped) == list(range(len(pairs)))
    assert (found.stream, found.tokens) == (fold_to_state(built, rest)[0], _tokens(built, rest))
    assert found.tokens == sum(len(each.ids) for each in found.stream) + len(found.opener)
    assert found.tokens <= tokens_max
    pinned = {
        index for index, (block, _) in enumerate(pairs) if block.role is Role.SYSTEM and block.trust
    }
    assert not pinned & set(found.dropped)


def test_dropping_costs_where_turns_stood_and_not_the_whole_fold_again() -> None:
    pairs = [pair for index in range(200) for pair in (user(f"q{index}"), model(f"a{index}"))]
    steps = 0

    def step(state: State, index: int) -> tuple[BlockTokens, State]:
        nonlocal steps
        steps += 1
        return _CHAT.step(state, *pairs[index])

    found = within_budget(_policy(100), _CHAT, [block for block, _ in pairs], step)
    assert len(found.dropped) > 380
    # One fold, and for each try the one block whose head changed.
    assert steps < len(pairs) + 2 * 200
