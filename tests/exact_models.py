"""The two models of the exactness tests: how to open them, and their schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from actors.worker.backends.llama import LlamaBackend
from profiles import loader
from profiles.profile import RuntimeProfile
from protocol.grammar import Grammar
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.grammars.gemma_transcript import GemmaTranscript
from protocol.ids import ProfileId
from protocol.record import object_id
from tests.model_fixtures import real, tiny


@dataclass(frozen=True)
class ExactModel:
    path: Callable[[], Path]
    profile: Callable[[], RuntimeProfile]
    make_grammar: Callable[[Any], Grammar]
    chunk_tokens: int
    answer_tokens: int
    words_max: int

    def open(self, profile: RuntimeProfile | None = None) -> LlamaBackend:
        """A new back end under `profile`, or this model's own; the caller closes it."""
        return LlamaBackend(self.path(), profile or self.profile())

    def throughput_profile(self) -> RuntimeProfile:
        """The profile for eight answers at once, as `gemma3-270m-throughput` has it."""
        own, shape = self.profile(), loader.load("gemma3-270m-throughput").runtime
        return structs.replace(
            own,
            name=f"{own.model.name}-throughput",
            streams=shape.streams,
            context_tokens=own.context_tokens * own.streams // shape.streams,
            group_max=shape.group_max,
            reproducible_generation=shape.reproducible_generation,
        )

    def grammar(self, backend: Any) -> Grammar:
        return self.make_grammar(backend.tokenizer)

    def profile_id(self) -> ProfileId:
        found = object_id(self.profile())
        assert isinstance(found, ProfileId)
        return found


MODELS = {
    "tiny": ExactModel(
        path=lambda: tiny()[0],
        profile=lambda: tiny()[1],
        make_grammar=GemmaInstruct,
        chunk_tokens=64,
        answer_tokens=6,
        words_max=60,
    ),
    "real": ExactModel(
        path=lambda: real()[0],
        profile=lambda: real()[1],
        make_grammar=GemmaTranscript,
        chunk_tokens=256,
        answer_tokens=8,
        words_max=150,
    ),
}
