"""The two models of the exactness tests: how to open them, and their schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from actors.worker.backends.llama import LlamaBackend
from profiles.profile import RuntimeProfile
from protocol.grammar import Grammar
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.grammars.gemma_transcript import GemmaTranscript
from protocol.ids import ProfileId
from protocol.record import object_id
from tests.model_fixtures import open_real, real, tiny


@dataclass(frozen=True)
class ExactModel:
    open: Callable[[], Any]
    profile: Callable[[], RuntimeProfile]
    make_grammar: Callable[[Any], Grammar]
    chunk_tokens: int
    answer_tokens: int
    words_max: int

    def grammar(self, backend: Any) -> Grammar:
        return self.make_grammar(backend.tokenizer)

    def profile_id(self) -> ProfileId:
        found = object_id(self.profile())
        assert isinstance(found, ProfileId)
        return found


def _tiny_profile() -> RuntimeProfile:
    """The tiny model's window is 64: no advance is longer, or its rows could not be exported."""
    return structs.replace(
        tiny()[1], schedule="block/64", chunk_tokens=64, page_tokens=64, context_tokens=2048
    )


MODELS = {
    "tiny": ExactModel(
        open=lambda: LlamaBackend(tiny()[0], _tiny_profile()),
        profile=_tiny_profile,
        make_grammar=GemmaInstruct,
        chunk_tokens=64,
        answer_tokens=6,
        words_max=60,
    ),
    "real": ExactModel(
        open=open_real,
        profile=lambda: real()[1],
        make_grammar=GemmaTranscript,
        chunk_tokens=256,
        answer_tokens=8,
        words_max=150,
    ),
}
