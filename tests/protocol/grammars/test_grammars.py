"""Grammars by name."""

from __future__ import annotations

import pytest

from protocol.errors import ContentError
from protocol.grammars import GRAMMARS, grammar
from tests.fake_tokenizer import FakeTokenizer


@pytest.mark.parametrize("name", sorted(GRAMMARS))
def test_a_grammar_is_found_by_its_own_name(name: str) -> None:
    made = grammar(name, FakeTokenizer())
    assert made.name == name
    assert made.template.name == name


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ContentError, match="gemma3-it, gemma3-transcript"):
        grammar("chatml", FakeTokenizer())
