"""Budgets (ASM-7): too much is an error with both numbers, or whole turns are dropped and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.errors import BudgetExceeded
from protocol.grammars import grammar
from protocol.tokens import TokenIds
from tests.assembler_rooms import TALK, expected, shown
from tests.block_samples import model, system, user
from tests.fake_tokenizer import FakeTokenizer
from tests.rooms import PROFILE, Installation, Principal, assemble, assembled, new_blocks, profile


@pytest.mark.req("ASM-7")
async def test_over_budget_is_an_error_with_both_numbers(
    house: Installation, alice: Principal
) -> None:
    whole = expected(TALK)
    needed = whole.tokens + len(whole.opener) // 4
    fits = await assembled(alice, assemble(TALK, tokens_max=needed))
    assert fits == expected(TALK, tokens_max=needed)
    before = house.store.stats()
    with pytest.raises(BudgetExceeded) as caught:
        await assembled(alice, assemble(TALK, tokens_max=needed - 1))
    assert caught.value.details == {"tokens": needed, "tokens_max": needed - 1}
    assert house.store.stats() == before


class Watched(FakeTokenizer):
    """Knows for how many characters it was asked."""

    characters = 0

    def encode(self, text: str) -> TokenIds:
        self.characters += len(text)
        return super().encode(text)


@pytest.mark.req("ASM-7")
async def test_what_no_tokenization_could_fit_is_refused_without_one() -> None:
    tokenizer = Watched()
    brought = profile()
    grammars = {each: grammar(each, tokenizer) for each in brought.grammars}
    watched = replace(brought, grammar=grammars["gemma3-it"], grammars=grammars)
    alice = await (await Installation(profiles={PROFILE: watched}).start()).enroll("alice")
    before = tokenizer.characters
    with pytest.raises(BudgetExceeded) as caught:
        await assembled(alice, assemble([user("x" * 300_001)], tokens_max=300_000))
    assert caught.value.details == {"tokens": 300_001, "tokens_max": 300_000}
    assert tokenizer.characters == before
    # What is trimmed away counts for nothing.
    padded = " " * 200_000 + "x" * 1_000 + "\n" * 200_000
    answer = await assembled(alice, assemble([user(padded)], tokens_max=2_000))
    assert tokenizer.characters > before
    assert answer.tokens < 2_000


@pytest.mark.req("ASM-7")
async def test_a_policy_drops_whole_turns_and_says_which(alice: Principal) -> None:
    talk = [system("s"), user("a" * 50), model("b" * 50), user("c"), model("d"), user("e")]
    ask = assemble(talk, policy="drop-oldest-turns", tokens_max=150)
    answer = await assembled(alice, ask)
    assert answer.dropped == [1, 2]
    kept = [pair for index, pair in enumerate(talk) if index not in answer.dropped]
    assert answer.segments == expected(kept).segments
    assert answer.tokens + len(answer.opener) // 4 <= 150
    # It is the context of what was kept, whoever asks for it.
    alone = await assembled(alice, assemble(kept, policy="drop-oldest-turns", tokens_max=150))
    assert (alone.context, alone.sequence) == (answer.context, answer.sequence)
    assert alone.dropped == []
    assert (await shown(alice, answer.context)).blocks == new_blocks(kept)
