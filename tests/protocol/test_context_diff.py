"""The first difference of two contexts, in blocks and in tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.blocks import BlockType, Role, text_block
from protocol.context_diff import (
    ContextDiff,
    FirstDifference,
    Placed,
    common_tokens,
    first_difference,
)
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.tokens import TokenIds
from protocol.transform import fold
from tests.block_samples import Pair, conversations, model, system, user
from tests.fake_tokenizer import FakeTokenizer

_GRAMMAR = GemmaInstruct(FakeTokenizer())


def _placed(pairs: list[Pair]) -> list[Placed]:
    stream = fold(_GRAMMAR, pairs)
    return [Placed(block, tokens) for (block, _), tokens in zip(pairs, stream, strict=True)]


def _titled(text: str, title: str) -> Pair:
    return text_block(Role.USER, BlockType.FILE, text, rendering={"title": title}), text


_BEFORE = [system("be kind"), user("one")]
_AT = sum(len(placed.tokens.ids) for placed in _placed(_BEFORE))


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([model("x"), user("y")], [user("y"), model("x")], "order"),
        ([model("x")], [user("x")], "role"),
        ([model("x")], [model("z")], "content"),
        ([_titled("x", "a")], [_titled("x", "b")], "rendering"),
        ([], [model("x")], "inserted"),
        ([user("y")], [model("x"), user("y")], "inserted"),
        ([model("x")], [], "removed"),
        ([model("x"), user("y"), model("z")], [user("y"), model("z")], "removed"),
    ],
)
def test_every_reason(a: list[Pair], b: list[Pair], reason: str) -> None:
    old, new = _placed([*_BEFORE, *a]), _placed([*_BEFORE, *b])
    found = first_difference(old, new)
    assert found.equal_blocks == 2
    assert found.first_difference is not None
    assert (found.first_difference.index, found.first_difference.reason) == (2, reason)
    assert found.first_difference.token_index >= _AT


def test_token_index_counts_the_header_that_two_answers_share() -> None:
    old, new = _placed([*_BEFORE, model("yes")]), _placed([*_BEFORE, model("yet")])
    head = len(old[2].tokens.head)
    assert first_difference(old, new) == ContextDiff(
        2, FirstDifference(2, "content", _AT + head + 2)
    )


def test_equal_blocks_with_other_tokens_differ_by_contract() -> None:
    old = _placed(_BEFORE)
    other = replace(old[1].tokens, content=(1, 2, 3))
    found = first_difference(old, [old[0], Placed(old[1].block, other)])
    assert found.equal_blocks == 1
    assert found.first_difference is not None
    assert found.first_difference.reason == "contract"


@given(conversations, conversations)
def test_the_common_prefix_is_common_and_no_longer(a: list[Pair], b: list[Pair]) -> None:
    old, new = _placed(a), _placed(b)
    found = first_difference(old, new)
    assert old[: found.equal_blocks] == new[: found.equal_blocks]
    if found.first_difference is None:
        assert old == new
        return
    at = found.first_difference.token_index
    ids = [sum((placed.tokens.ids for placed in each), ()) for each in (old, new)]
    assert ids[0][:at] == ids[1][:at]
    assert ids[0][at : at + 1] != ids[1][at : at + 1] or at == min(map(len, ids))
    assert found.first_difference.index == found.equal_blocks


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_common_tokens_against_a_plain_loop(a: list[int], b: list[int]) -> None:
    old: TokenIds = tuple(a)
    new: TokenIds = tuple(b)
    expected = 0
    while expected < min(len(a), len(b)) and a[expected] == b[expected]:
        expected += 1
    assert common_tokens(old, new) == expected
