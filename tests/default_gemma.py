"""The default model of the product, for tests that are marked `model`: its vocabulary, by path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from tests import model_fixtures

# Bits of the library's enum llama_token_attr: unknown, unused, control, user-defined.
_SPECIAL = 1 | 2 | 8 | 16


def path() -> Path:
    """Where the weights are; fetched first where they are not."""
    return model_fixtures.real()[0]


@cache
def tokenizer() -> LlamaTokenizer:
    """The one tokenizer of this process: half a second to load, and it is pure."""
    return LlamaTokenizer(path())


def special_texts(tokenizer: LlamaTokenizer) -> list[str]:
    """The texts of every control, unknown and user-defined token of a vocabulary, in id order."""
    # The library knows them; reading them from the file in Python takes half a minute.
    module, vocabulary = tokenizer._library, tokenizer._vocabulary
    return [
        module.llama_vocab_get_text(vocabulary, token).decode("utf-8")
        for token in range(tokenizer.contract.vocabulary_tokens)
        if module.llama_vocab_get_attr(vocabulary, token) & _SPECIAL
    ]
