"""What the gateway serves: a name that clients say, and the worker room behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from protocol.errors import ContentError
from protocol.messages.worker import ModelInfo
from protocol.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model under one profile. `room` is the worker room's name; `created_s` Unix seconds.

    The tokenizer checks ids that come from outside and turns ids into text; answers come from the
    worker, contexts from the assembler. `temperature_default` is for requests that name none.
    """

    name: str
    profile: str
    room: str
    info: ModelInfo
    tokenizer: Tokenizer
    created_s: int
    temperature_default: float = 1.0

    @property
    def prompt_tokens_max(self) -> int:
        """The longest prompt that leaves room for one token of answer."""
        return self.info.context_tokens - 1


class ServedModels:
    """The models by name, in the order given: the first is the default."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        """Raises ContentError for two models of one name."""
        self._by_name: dict[str, ServedModel] = {}
        for model in models:
            if model.name in self._by_name:
                raise ContentError(f"two models are named {model.name!r}: give one another name")
            self._by_name[model.name] = model

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def find(self, name: str | None, profile: str | None = None) -> ServedModel | None:
        """The model called `name` (None: any) under `profile` (None: any), or None."""
        for model in self._by_name.values():
            if name in (None, model.name) and profile in (None, model.profile):
                return model
        return None
