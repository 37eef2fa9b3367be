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
from protocol.tokens import TOKEN_BYTES, TokenIds, unpack


@dataclass(frozen=True, slots=True)
class Prompt:
    """`chains[k]` names the state after `advances[k]`; `tokens` is the length of the stream. The
    first `public` advances are those that feed ids of public segments and no others."""

    segments: tuple[Segment, ...]
    advances: tuple[Advance, ...]
    chains: tuple[ChainId, ...]
    tokens: int
    public: int = 0

    @property
    def public_tokens(self) -> int:
        """How many tokens the public advances feed."""
        return self.advances[self.public - 1].stop if self.public else 0

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

    def read(
        self, segments: Sequence[Segment], opener: bytes, *, answer_tokens: int, public: int = 0
    ) -> Prompt:
        """The prompt, if the context holds it and `answer_tokens` more. Its first `public` segments
        are public. An advance in which they are joined by what follows them, an opener or the head
        of a model block, is not: it says how somebody's conversation goes on.

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
        self._check_all(segments, opener)
        pieces = tuple(advances(segments, opener, chunk_tokens=self._chunk_tokens))
        public_tokens = stream_tokens(segments[:public], b"")
        return Prompt(
            tuple(segments),
            pieces,
            tuple(chains(self._profile, pieces)),
            tokens,
            sum(piece.stop <= public_tokens for piece in pieces),
        )

    def _check_all(self, segments: Sequence[Segment], opener: bytes) -> None:
        """Raises ContentError unless every id is in the vocabulary and, in content, allowed."""
        heads = [*(segment.head for segment in segments), opener]
        contents = [segment.content for segment in segments]
        # All at once: a look at each by itself takes longer than the few ids that it has.
        if self._allowed(heads, content=False) and self._allowed(contents, content=True):
            return
        for segment in segments:
            self._check(segment.head, content=False)
            self._check(segment.content, content=True)
        self._check(opener, content=False)

    def _check(self, packed: bytes, *, content: bool) -> None:
        """As `_check_all`, of one part: the slow way round, for an error that names the id and its
        place."""
        ids = unpack(packed)
        if not self._allowed([packed], content=content):
            check_outside_ids(ids, self._tokenizer)

    def _allowed(self, parts: Sequence[bytes], *, content: bool) -> bool:
        """Whether `parts` are packed ids, all in the vocabulary and, in content, none denied."""
        if any(len(part) % TOKEN_BYTES for part in parts):
            return False
        ids = np.frombuffer(b"".join(parts), dtype="<u4")
        if not len(ids):
            return True
        outside = int(ids.max()) >= len(self._denied)
        return not outside and not (content and bool(self._denied[ids].any()))
