"""The conversations of an experiment: drawn from a seed, as long as asked, the same every time.

Lengths are real token counts, asked of the service: a word has other tokens under another model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from protocol.errors import ContentError

Message = dict[str, str]
CountTokens = Callable[[list[Message]], int]

MESSAGES_MIN: Final = 5
_NOUNS: Final = (
    "river harbour lantern ship market garden bridge letter carpenter teacher sailor baker child "
    "rope clock map apple window boat tower forest king mirror violin"
)
_KINDS: Final = "old green quiet narrow wooden red broken little golden northern heavy strange"
_DEEDS: Final = "carries finds opens repairs measures remembers follows sells paints hides"
_PLACES: Final = "under beside near behind above"
# Most messages of a chat are this long or shorter; a message is one advance of the schedule.
_MESSAGE_TOKENS: Final = 80
_ANSWER_TOKENS: Final = 24
_TURN_TOKENS: Final = 24
_SAMPLE_WORDS: Final = 40


@dataclass(frozen=True)
class Sizes:
    """How long things are, in tokens. `window` bounds them: an advance that is longer than the
    model's sliding window has no state digest."""

    message: int
    answer: int
    turn: int

    @classmethod
    def for_window(cls, window_tokens: int) -> Sizes:
        """The sizes for a model with that window (0: none)."""
        window = window_tokens or 4 * _MESSAGE_TOKENS
        return cls(
            message=min(_MESSAGE_TOKENS, window // 2),
            answer=max(4, min(_ANSWER_TOKENS, window // 8)),
            turn=min(_TURN_TOKENS, window // 3),
        )


class Writer:
    """Draws messages. `tokens_per_word` is measured once, on words of its own."""

    def __init__(self, seed: int, sizes: Sizes, count: CountTokens) -> None:
        self._random = Random(seed)
        self.sizes = sizes
        self._count = count
        short = _user("river")
        long = _user(" ".join(["river", *self._words(_SAMPLE_WORDS)]))
        self._tokens_per_word = max(1.0, (count([long]) - count([short])) / _SAMPLE_WORDS)

    def message(self, role: str, tokens: int) -> Message:
        """A new message of about `tokens` tokens, at least one sentence's beginning."""
        words = self._words(max(1, math.floor(tokens / self._tokens_per_word)))
        return {"role": role, "content": " ".join(words).rstrip(".") + "."}

    def conversation(self, tokens: int) -> list[Message]:
        """User and assistant in turn, the user last, of about `tokens` tokens in all.

        Raises ContentError for fewer tokens than a handful of messages have.
        """
        size = self.sizes.message
        messages: list[Message] = []
        left = tokens - self._count([_user("river")])
        # The last message is a whole one, so the pair before it takes up what is left over.
        while left >= 3 * size // 2:
            each = size if left >= 3 * size else (left - size) // 2
            messages += [self.message("user", each), self.message("assistant", each)]
            left = tokens - self._count([*messages, _user("river")])
        messages.append(self.message("user", max(1, min(size, left))))
        if len(messages) < MESSAGES_MIN:
            raise ContentError(
                f"{tokens} tokens are {len(messages)} messages of about {size} tokens, and an "
                f"experiment needs {MESSAGES_MIN}: ask for at least {(MESSAGES_MIN + 2) * size}"
            )
        return messages

    def _words(self, count: int) -> list[str]:
        words: list[str] = []
        while len(words) < count:
            words += self._sentence().split()
        return words[:count]

    def _sentence(self) -> str:
        kind, noun, deed, place = (
            partial(self._random.choice, words.split())
            for words in (_KINDS, _NOUNS, _DEEDS, _PLACES)
        )
        return f"The {kind()} {noun()} {deed()} the {noun()} {place()} the {kind()} {noun()}."


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
