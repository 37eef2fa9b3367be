"""What a grammar's step gives: two runs of ids, and a state that can be a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.grammar import BlockTokens, State

ids = st.lists(st.integers(0, 300), max_size=6).map(tuple)


@given(ids, ids)
def test_a_blocks_ids_are_its_head_and_then_its_content(
    head: tuple[int, ...], content: tuple[int, ...]
) -> None:
    tokens = BlockTokens(head, content)
    assert tokens.ids == (*head, *content)
    # Where head ends is part of what it is: the same ids cut elsewhere are another block's.
    assert (BlockTokens(content, head) == tokens) == (head == content)


def test_a_state_is_equal_by_what_it_says() -> None:
    assert State(turn="user", last="part") == State("user", "part")
    assert len({State("user", "part"), State("user", "part"), State("part", "user")}) == 2
