"""Conversations: from a seed, as long as asked, no message longer than its size."""

from __future__ import annotations

import pytest

from actors.experiment.conversation import MESSAGES_MIN, Message, Sizes, Writer
from protocol.errors import ContentError

SIZES = Sizes.for_window(512)


def count(messages: list[Message]) -> int:
    """A tokenizer of one token for each word, and five for each message's frame."""
    return sum(5 + len(message["content"].split()) for message in messages)


@pytest.mark.parametrize("tokens", [600, 1000, 2001, 5000])
def test_about_as_long_as_asked_and_the_user_last(tokens: int) -> None:
    messages = Writer(7, SIZES, count).conversation(tokens)
    assert abs(count(messages) - tokens) <= SIZES.message
    assert [message["role"] for message in messages[:3]] == ["user", "assistant", "user"]
    assert messages[-1]["role"] == "user"
    assert max(count([message]) for message in messages) <= SIZES.message + 5


def test_the_seed_decides() -> None:
    one, same, other = (Writer(seed, SIZES, count).conversation(900) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_too_few_tokens_are_refused_with_what_is_enough() -> None:
    writer = Writer(0, SIZES, count)
    with pytest.raises(ContentError, match=f"needs {MESSAGES_MIN}"):
        writer.conversation(60)
    assert len(writer.conversation((MESSAGES_MIN + 2) * SIZES.message)) >= MESSAGES_MIN


def test_a_small_window_bounds_every_size() -> None:
    small = Sizes.for_window(64)
    assert (small.message, small.answer, small.turn) == (32, 8, 21)
    assert Sizes.for_window(0) == Sizes.for_window(512)
