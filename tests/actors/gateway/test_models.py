"""The models that are served, by name and profile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.gateway.models import ServedModel, ServedModels
from protocol.errors import ContentError
from tests.fake_tokenizer import FakeTokenizer
from tests.scripted_worker import INFO


def served(name: str, profile: str) -> ServedModel:
    info = replace(INFO, name=name)
    return ServedModel(name, profile, "worker", info, FakeTokenizer(), 1)


def test_the_first_is_the_default() -> None:
    models = ServedModels([served("a", "p"), served("b", "q")])
    assert [model.name for model in models] == ["a", "b"]
    for name, profile, found in [
        (None, None, "a"),
        ("b", None, "b"),
        (None, "q", "b"),
        ("b", "q", "b"),
    ]:
        model = models.find(name, profile)
        assert model is not None
        assert model.name == found
    assert models.find("c") is None
    assert models.find("a", "q") is None


def test_a_name_is_one_model() -> None:
    with pytest.raises(ContentError):
        ServedModels([served("a", "p"), served("a", "q")])


def test_the_longest_prompt_leaves_one_token() -> None:
    assert served("a", "p").prompt_tokens_max == INFO.context_tokens - 1
