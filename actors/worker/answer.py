"""One answer as it is generated: from logits to tokens, text and the reason why it ended."""

from __future__ import annotations

from typing import Final, Literal

from actors.worker.sampler import LOGPROBS_MAX, Logits, TokenSampler, logprobs
from actors.worker.stops import AnswerText
from protocol.errors import ContentError, LimitExceeded
from protocol.messages.worker import Generate, Item, TokenLogprob, TopLogprob
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds, pack

Finish = Literal["stop", "length", "cancelled", "time"]
_PPM: Final = 1_000_000
# A grammar ends turns with one or two; a caller names none.
STOP_IDS_MAX: Final = 64


class Answer:
    """Takes the logits of one position after the other.

    A delta's ids are those of the tokens that lie wholly in certain text. A token in which a stop
    text begins is no part of the answer, though the text before the stop is. `pending` is the
    token chosen last, which has to be fed before the next logits.

    Raises ContentError or LimitExceeded for parameters that no answer can have.
    """

    def __init__(
        self,
        asked: Generate,
        tokenizer: Tokenizer,
        *,
        prompt: TokenIds,
        context_tokens: int,
        seed: int,
    ) -> None:
        if asked.tokens_max < 1:
            raise ContentError(f"tokens_max is {asked.tokens_max}: an answer has at least 1")
        if asked.logprobs_top is not None and not 0 <= asked.logprobs_top <= LOGPROBS_MAX:
            raise ContentError(f"logprobs_top is {asked.logprobs_top}: 0 to {LOGPROBS_MAX}")
        if len(asked.stop_ids) > STOP_IDS_MAX:
            raise LimitExceeded(f"{len(asked.stop_ids)} stop ids: at most {STOP_IDS_MAX}")
        self._stop_ids = frozenset(asked.stop_ids)
        self._sampler = TokenSampler(
            asked.sampler, tokenizer, stop_ids=self._stop_ids, prompt=prompt, seed=seed
        )
        self._tokenizer = tokenizer
        self._text = AnswerText([*asked.stop_texts, *asked.stops], trim=asked.deliver_trim)
        self._position = len(prompt)
        self._tokens_max = min(asked.tokens_max, context_tokens - len(prompt))
        self._logprobs_top = asked.logprobs_top
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._given = 0
        self.seed = seed
        self.asked = asked

    @property
    def tokens(self) -> int:
        """How many tokens were generated; an id that ended the answer is not counted."""
        return len(self._tokens)

    @property
    def ids(self) -> TokenIds:
        """What was generated, without an id that ended the answer."""
        return tuple(self._tokens)

    @property
    def tokens_max(self) -> int:
        """The most that it may have, in this context."""
        return self._tokens_max

    @property
    def pending(self) -> int:
        return self._tokens[-1]

    def take(self, logits: Logits) -> tuple[Item | None, Finish | None]:
        """Choose the next token from `logits` (which this changes): what is to be delivered, and
        why the answer has ended if it has. Raises WorkerFault for logits that are no numbers."""
        allowed = self._sampler.allow(logits)
        token = self._sampler.choose(allowed, self._position + len(self._tokens))
        if token in self._stop_ids:
            return self.rest(), "stop"
        if self._logprobs_top is not None:
            self._logprobs.append(self._logprob(allowed, token, self._logprobs_top))
        self._tokens.append(token)
        text = self._text.feed(self._tokenizer.piece(token))
        if self._text.stopped:
            return self._delta(text, last=True), "stop"
        if len(self._tokens) == self._tokens_max:
            return self._delta(text + self._text.finish(), last=True), "length"
        return self._delta(text, last=False), None

    def rest(self) -> Item | None:
        """What was held back, when the answer ends here."""
        return self._delta(self._text.finish(), last=True)

    def _delta(self, text: str, *, last: bool) -> Item | None:
        start, stop = self._given, self._text.tokens_out
        if not text and not (last and stop > start):
            return None
        self._given = stop
        return Item(
            kind="delta",
            text=text,
            ids=pack(self._tokens[start:stop]),
            logprobs=None if self._logprobs_top is None else self._logprobs[start:stop],
        )

    def _logprob(self, allowed: Logits, token: int, top: int) -> TokenLogprob:
        own, listed = logprobs(allowed, token, top)
        piece = self._tokenizer.piece
        return TokenLogprob(
            token=own.token,
            piece=piece(own.token),
            logprob_ppm=round(own.logprob * _PPM),
            top=[
                TopLogprob(
                    token=entry.token,
                    piece=piece(entry.token),
                    logprob_ppm=round(entry.logprob * _PPM),
                )
                for entry in listed
            ],
        )
