"""Budgets: a context that is too long is an error, or gives up whole turns and says which (ASM-7).

The budget counts everything that the model is fed: headers, fences, separators and the generation
opener. Nothing is ever cut inside a block.

A turn begins with a block that is neither the model's nor a tool's, at the beginning or after
something the model said; so tool calls, their results and the answer belong to the turn whose
question they serve, and a file or a reminder to the question that it stands before. Trusted system
blocks belong to no turn: they are pinned. `drop-oldest-turns` drops the fewest oldest turns that
bring the context within the budget, and never the last `keep_turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.assembly import BudgetPolicy
from protocol.blocks import ContextBlock, Role
from protocol.errors import BudgetExceeded, ContentError
from protocol.grammar import BlockTokens, Grammar, State
from protocol.tokens import TokenIds

Step = Callable[[State, int], tuple[BlockTokens, State]]


@dataclass(frozen=True, slots=True)
class Budgeted:
    """A context within its budget. `kept` and `dropped` are indices into the blocks given, in
    order and together all of them; `stream` holds the tokens of those kept; `tokens` counts the
    stream and the opener."""

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    stream: list[BlockTokens]
    opener: TokenIds
    tokens: int


def within_budget(
    policy: BudgetPolicy,
    grammar: Grammar,
    blocks: Sequence[ContextBlock],
    step: Step,
) -> Budgeted:
    """The context of `blocks` under `grammar`, within `policy`.

    `step(state, index)` gives block `index`'s tokens at `state`: the grammar's own step, perhaps
    out of a cache. Raises BudgetExceeded, with `tokens` and `tokens_max`, where the policy has no
    way out, ContentError for a policy that could drop everything, and what `step` raises.
    """
    if policy.tokens_max < 1 or (policy.policy == "drop-oldest-turns" and policy.keep_turns < 1):
        raise ContentError(
            "a budget is at least one token and keeps at least one turn, not "
            f"{policy.tokens_max} tokens and {policy.keep_turns} turns"
        )
    whole = _Whole(grammar, len(blocks), step)
    budgeted = whole.without(())
    if budgeted.tokens <= policy.tokens_max:
        return budgeted
    if policy.policy == "refuse":
        raise BudgetExceeded(
            f"the context is {budgeted.tokens} tokens with its opener, the budget is "
            f"{policy.tokens_max}: shorten it, or choose the policy drop-oldest-turns",
            tokens=budgeted.tokens,
            tokens_max=policy.tokens_max,
        )
    dropped: list[int] = []
    for turn in turns(blocks)[: -policy.keep_turns]:
        dropped += turn
        budgeted = whole.without(tuple(dropped))
        if budgeted.tokens <= policy.tokens_max:
            return budgeted
    raise BudgetExceeded(
        f"the context is {budgeted.tokens} tokens with its opener after {len(dropped)} blocks of "
        f"older turns were dropped, the budget is {policy.tokens_max}: trusted system blocks and "
        f"the last {policy.keep_turns} turns always stay",
        tokens=budgeted.tokens,
        tokens_max=policy.tokens_max,
    )


def turns(blocks: Sequence[ContextBlock]) -> list[list[int]]:
    """The turns of a context, each as the indices of its blocks; pinned blocks are in none."""
    found: list[list[int]] = []
    answered = True
    for index, block in enumerate(blocks):
        if block.role is Role.SYSTEM and block.trust:
            continue
        speaks = block.role in (Role.MODEL, Role.TOOL)
        if not found or (answered and not speaks):
            found.append([])
            answered = False
        found[-1].append(index)
        answered = answered or speaks
    return found


class _Whole:
    """The fold of all blocks, and folds without some of them at the cost of where those stood.

    A fold without some first turns meets the whole fold again as soon as its state is the same
    behind the last of them; from there on the tokens are the whole fold's.
    """

    def __init__(self, grammar: Grammar, count: int, step: Step) -> None:
        self._grammar = grammar
        self._step = step
        self._stream: list[BlockTokens] = []
        self._states = [grammar.initial()]
        self._sums = [0]
        for index in range(count):
            tokens, state = step(self._states[-1], index)
            self._stream.append(tokens)
            self._states.append(state)
            self._sums.append(self._sums[-1] + len(tokens.head) + len(tokens.content))

    def without(self, dropped: tuple[int, ...]) -> Budgeted:
        gone = frozenset(dropped)
        last = max(dropped, default=-1)
        count = len(self._stream)
        kept = tuple(index for index in range(count) if index not in gone)
        state = self._grammar.initial()
        stream: list[BlockTokens] = []
        index = 0
        while index < count and (index <= last or state != self._states[index]):
            if index not in gone:
                tokens, state = self._step(state, index)
                stream.append(tokens)
            index += 1
        total = sum(len(tokens.head) + len(tokens.content) for tokens in stream)
        total += self._sums[count] - self._sums[index]
        stream += self._stream[index:]
        opener = self._grammar.opener(self._states[count] if index < count else state)
        return Budgeted(kept, dropped, stream, opener, total + len(opener))
