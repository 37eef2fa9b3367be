"""A prompt as the engine takes it: checked, cut by the schedule, and named chain by chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actors.worker.chain import chains
from actors.worker.limits import SEGMENTS_MAX
from actors.worker.schedule import Advance, advances, stream_tokens
from protocol.errors import BudgetExceeded, ContentError, LimitExceeded
from protocol.ids import ChainId, ProfileId
from protocol.messages.assembler import Segment
from protocol.tokenizer import Tokenizer, check_outside_ids
from protocol.tokens import TokenIds, unpack


@dataclass(frozen=True, slots=True)
class Prompt:
    """`chains[k]` names the state after `advances[k]`; `tokens` is the length of the stream."""

    segments: tuple[Segment, ...]
    advances: tuple[Advance, ...]
    chains: tuple[ChainId, ...]
    tokens: int

    @property
    def ids(self) -> TokenIds:
        """The whole stream."""
        return tuple(token for advance in self.advances for token in advance.ids)


class PromptReader:
    """Makes prompts for one worker: one profile, one tokenizer, one context size."""

    def __init__(
        self, profile: ProfileId, tokenizer: Tokenizer, *, context_tokens: int, chunk_tokens: int
    ) -> None:
        self._profile = profile
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens
        self._chunk_tokens = chunk_tokens
        self._denied = np.zeros(tokenizer.contract.vocabulary_tokens, dtype=np.bool_)
        self._denied[sorted(tokenizer.deny)] = True

    def read(self, segments: Sequence[Segment], opener: bytes, *, answer_tokens: int) -> Prompt:
        """The prompt, if the context holds it and `answer_tokens` more.

        Raises ContentError for an empty prompt, for ids outside the vocabulary and for content
        that holds a control token; LimitExceeded for too many segments; BudgetExceeded, with both
        numbers, for one that is too long.
        """
        if len(segments) > SEGMENTS_MAX:
            raise LimitExceeded(f"{len(segments)} segments: a prompt has at most {SEGMENTS_MAX}")
        tokens = stream_tokens(segments, opener)
        if tokens == 0:
            raise ContentError("the prompt is empty: there is nothing to continue")
        room = self._context_tokens - answer_tokens
        if tokens > room:
            raise BudgetExceeded(
                f"the prompt has {tokens} tokens and the context of {self._context_tokens} has "
                f"room for {room}: shorten it, or give it a budget policy that drops old turns",
                tokens=tokens,
                tokens_max=room,
            )
        for segment in segments:
            self._check(segment.head, content=False)
            self._check(segment.content, content=True)
        self._check(opener, content=False)
        pieces = tuple(advances(segments, opener, chunk_tokens=self._chunk_tokens))
        return Prompt(tuple(segments), pieces, tuple(chains(self._profile, pieces)), tokens)

    def _check(self, packed: bytes, *, content: bool) -> None:
        """Raises ContentError unless every id is in the vocabulary and, in content, allowed."""
        if not packed or len(packed) % 4:
            unpack(packed)
            return
        ids = np.frombuffer(packed, dtype="<u4")
        outside = int(ids.max()) >= len(self._denied)
        if outside or (content and bool(self._denied[ids].any())):
            # The slow way round, for an error that names the id and its place.
            check_outside_ids(unpack(packed), self._tokenizer)
