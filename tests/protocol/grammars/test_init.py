"""Grammars are found by name, and only where the vocabulary can carry them."""

from __future__ import annotations

import pytest

from protocol.errors import ContentError
from protocol.grammars import GRAMMARS, grammar
from tests.fake_tokenizer import CONTROL, FakeTokenizer


def test_grammars_are_found_by_the_name_that_they_have() -> None:
    assert sorted(GRAMMARS) == ["gemma3-it", "gemma3-transcript"]
    for name in GRAMMARS:
        found = grammar(name, FakeTokenizer())
        assert found.name == found.template.name == found.separator.name == name
        assert found.tools.name == "json-lines"


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ContentError, match=r"no grammar 'chatml'.*gemma3-it, gemma3-transcript"):
        grammar("chatml", FakeTokenizer())


@pytest.mark.parametrize("missing", CONTROL)
def test_a_vocabulary_without_the_control_tokens_is_refused(missing: str) -> None:
    rest = {name: token for name, token in CONTROL.items() if name != missing}
    with pytest.raises(ContentError, match=f"lacks: {missing}"):
        grammar("gemma3-it", FakeTokenizer(rest))


def test_a_transcript_needs_only_a_beginning_and_an_end() -> None:
    small = {name: CONTROL[name] for name in ("bos", "eos")}
    assert grammar("gemma3-transcript", FakeTokenizer(small)).stop_ids == {CONTROL["eos"]}
    with pytest.raises(ContentError, match="lacks: bos"):
        grammar("gemma3-transcript", FakeTokenizer({"eos": CONTROL["eos"]}))
