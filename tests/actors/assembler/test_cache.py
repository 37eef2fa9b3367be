"""Remembered tokens are the reference's, bounded, and asked for only where they are missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.assembler.cache import BlockTokenCache, Load, contracts_of
from protocol.blocks import ContextBlock
from protocol.errors import ContentError
from protocol.grammar import Grammar
from protocol.grammars import GRAMMARS, grammar
from protocol.ids import BlockId
from protocol.record import object_id
from protocol.transform import fold
from tests.block_samples import Pair, conversations, model, user
from tests.fake_tokenizer import FakeTokenizer

_CHAT = grammar("gemma3-it", FakeTokenizer())
_PAIRS = [user("a"), model("b"), user("c")]


def _ids(pairs: list[Pair]) -> list[BlockId]:
    return [BlockId(object_id(block).digest) for block, _ in pairs]


def _loader(pairs: list[Pair], loaded: list[int]) -> Load:
    def load(index: int) -> tuple[ContextBlock, str]:
        loaded.append(index)
        return pairs[index]

    return load


def _missing(cache: BlockTokenCache, pairs: list[Pair], built: Grammar = _CHAT) -> list[int]:
    """The blocks that a fold has to load."""
    loaded: list[int] = []
    cache.fold(built, _ids(pairs), _loader(pairs, loaded))
    return loaded


@given(st.lists(conversations, max_size=3), st.integers(1, 6), st.integers(1, 200))
def test_a_cached_fold_is_the_reference_whatever_is_forgotten(
    runs: list[list[Pair]], items_max: int, tokens_max: int
) -> None:
    cache = BlockTokenCache(items_max, tokens_max)
    for pairs in [*runs, *runs]:
        for name in GRAMMARS:
            built = grammar(name, FakeTokenizer())
            assert cache.fold(built, _ids(pairs), _loader(pairs, [])) == fold(built, pairs)
            assert len(cache) <= items_max
            assert cache.tokens <= tokens_max


def test_one_more_turn_loads_one_more_block() -> None:
    cache = BlockTokenCache(10)
    loaded: list[int] = []
    cache.fold(_CHAT, _ids(_PAIRS), _loader(_PAIRS, loaded))
    assert loaded == [0, 1, 2]
    longer = [*_PAIRS, model("d")]
    loaded.clear()
    assert cache.fold(_CHAT, _ids(longer), _loader(longer, loaded)) == fold(_CHAT, longer)
    assert loaded == [3]


def test_an_edit_in_the_middle_loads_what_changed_and_what_its_state_changed() -> None:
    cache = BlockTokenCache(10)
    cache.fold(_CHAT, _ids(_PAIRS), _loader(_PAIRS, []))
    loaded: list[int] = []
    edited = [_PAIRS[0], model("other"), _PAIRS[2]]
    cache.fold(_CHAT, _ids(edited), _loader(edited, loaded))
    assert loaded == [1]
    removed = [_PAIRS[1], _PAIRS[2]]
    loaded.clear()
    cache.fold(_CHAT, _ids(removed), _loader(removed, loaded))
    assert loaded == [0]


def test_other_contracts_share_nothing() -> None:
    cache = BlockTokenCache(10)
    cache.fold(_CHAT, _ids(_PAIRS), _loader(_PAIRS, []))
    transcript = grammar("gemma3-transcript", FakeTokenizer())
    retokenized = grammar("gemma3-it", FakeTokenizer(discipline="other/1"))
    for other in (transcript, retokenized):
        assert contracts_of(other) != contracts_of(_CHAT)
        assert _missing(cache, _PAIRS, other) == [0, 1, 2]
    assert contracts_of(grammar("gemma3-it", FakeTokenizer())) == contracts_of(_CHAT)


def test_the_least_recently_used_goes_first() -> None:
    cache = BlockTokenCache(2)
    for text in ("a", "b", "a", "c"):
        pairs = [user(text)]
        cache.fold(_CHAT, _ids(pairs), _loader(pairs, []))
    assert len(cache) == 2
    assert [_missing(cache, [user(text)]) for text in "acb"] == [[], [], [0]]


def test_tokens_are_bounded_too_and_counted_back() -> None:
    cache = BlockTokenCache(100, 30)
    for text in ("x" * 10, "y" * 10, "z" * 100):
        pairs = [user(text)]
        assert cache.fold(_CHAT, _ids(pairs), _loader(pairs, [])) == fold(_CHAT, pairs)
    assert (len(cache), cache.tokens) == (0, 0)


@pytest.mark.parametrize(("items_max", "tokens_max"), [(0, 1), (1, 0)])
def test_a_cache_of_nothing_is_refused(items_max: int, tokens_max: int) -> None:
    with pytest.raises(ContentError, match="at least one block"):
        BlockTokenCache(items_max, tokens_max)
