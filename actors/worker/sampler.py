"""Choosing the next token from logits: ours, in numpy, the same for every back end.

In this order: denied ids get no chance at all; the bias is added; repetition, frequency and
presence penalties; temperature 0 takes the largest logit, the lowest id among equals; otherwise
temperature, top-k, top-p, min-p (each on what the one before left), and a draw.

A draw is a function of (seed, position) through Philox, a counter-based generator, so a seed means
the same answer wherever it is asked, whatever ran before (KV-9). Everything after the back end's
float32 logits is float64, and every tie goes to the lower id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import ContentError, LimitExceeded, WorkerFault
from protocol.messages.worker import Sampler
from protocol.tokenizer import Tokenizer, check_outside_ids
from protocol.tokens import TokenIds

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]

PPM: Final = 1_000_000
# The largest value of a parameter, in millionths: ten times what anybody uses, and far from where
# float64 loses a distinction.
_FACTOR_PPM_MAX: Final = 1_000 * PPM
BIASES_MAX: Final = 1_024
LOGPROBS_MAX: Final = 20
# Candidates that the first try of top-p sorts; most distributions need fewer.
_NUCLEUS_FIRST: Final = 1_024
_UINT64: Final = (1 << 64) - 1


class Logprob(NamedTuple):
    """A token and the natural logarithm of its probability."""

    token: int
    logprob: float


@lru_cache(maxsize=16)
def _denied(deny: frozenset[int], stop_ids: frozenset[int]) -> Ids:
    """The ids that are never chosen. The same for all answers of a model: thousands of ids, which
    an answer that begins need not wait for."""
    return np.array(sorted(deny - stop_ids), dtype=np.int64)


class TokenSampler:
    """The sampler of one answer.

    `stop_ids` are the only denied ids that it may choose. `prompt` are the ids before the answer:
    the repetition penalty counts them, the frequency and presence penalties only the answer.
    Raises ContentError for a parameter out of its range or a bias on a denied id, LimitExceeded
    for too many biases.
    """

    def __init__(
        self,
        asked: Sampler,
        tokenizer: Tokenizer,
        *,
        stop_ids: frozenset[int],
        prompt: TokenIds,
        seed: int,
    ) -> None:
        check_sampler(asked, tokenizer)
        self._asked = asked
        self._seed = seed & _UINT64
        self._denied = _denied(tokenizer.deny, stop_ids)
        biases = {token: ppm for token, ppm in asked.logit_bias}
        self._bias_ids = np.array(list(biases), dtype=np.int64)
        self._bias = np.array(list(biases.values()), dtype=np.float64) / PPM
        self._seen: Ids = np.unique(np.array(prompt, dtype=np.int64))
        self._counts: dict[int, int] = {}
        # The array that `allow` gave last, and where its largest logit is.
        self._peak: tuple[Logits | None, int] = (None, 0)

    def allow(self, logits: Logits) -> Logits:
        """`logits`, changed in place: denied ids are minus infinity. WorkerFault for a NaN."""
        logits[self._denied] = -np.inf
        token = int(np.argmax(logits))
        if not np.isfinite(logits[token]):
            raise WorkerFault(
                f"the model's largest logit is {logits[token]}: its computation broke down"
            )
        self._peak = (logits, token)
        return logits

    def choose(self, allowed: Logits, position: int) -> int:
        """The token at `position` of the stream, from logits that `allow` gave; they are not
        changed. Call once a token and in order: the penalties count what was chosen."""
        token = self._choose(allowed, position)
        self._counts[token] = self._counts.get(token, 0) + 1
        return token

    def _choose(self, allowed: Logits, position: int) -> int:
        asked = self._asked
        if not self._changes_logits():
            if asked.temperature_ppm == 0:
                found, token = self._peak
                return token if found is allowed else int(np.argmax(allowed))
            logits = allowed.astype(np.float64)
        else:
            logits = self._penalize(allowed.astype(np.float64))
            if asked.temperature_ppm == 0:
                return int(np.argmax(logits))
        logits *= PPM / asked.temperature_ppm
        weights = np.exp(logits - logits[int(np.argmax(logits))])
        ids = candidates(weights, asked.top_k, asked.top_p_ppm / PPM, asked.min_p_ppm / PPM)
        chosen = weights if ids is None else weights[ids]
        sums = np.cumsum(chosen)
        # `right` never lands on a weight of zero; the last index guards against rounding up.
        index = int(np.searchsorted(sums, draw(self._seed, position) * sums[-1], side="right"))
        index = min(index, int(np.flatnonzero(chosen)[-1]))
        return index if ids is None else int(ids[index])

    def _changes_logits(self) -> bool:
        asked = self._asked
        return bool(
            asked.logit_bias
            or asked.repeat_penalty_ppm != PPM
            or asked.frequency_penalty_ppm
            or asked.presence_penalty_ppm
        )

    def _penalize(self, logits: Floats) -> Floats:
        asked = self._asked
        logits[self._bias_ids] += self._bias
        answer = np.array(list(self._counts), dtype=np.int64)
        if asked.repeat_penalty_ppm != PPM:
            seen = np.union1d(self._seen, answer)
            factor = asked.repeat_penalty_ppm / PPM
            values = logits[seen]
            logits[seen] = np.where(values > 0, values / factor, values * factor)
        if answer.size:
            counts = np.array(list(self._counts.values()), dtype=np.float64)
            logits[answer] -= counts * (asked.frequency_penalty_ppm / PPM)
            logits[answer] -= asked.presence_penalty_ppm / PPM
        return logits


def candidates(weights: Floats, top_k: int, top_p: float, min_p: float) -> Ids | None:
    """The ids that top-k, top-p and min-p leave of `weights`, heaviest first, ties by id; None if
    all three are off. At least one is left."""
    if top_k == 0 and top_p >= 1 and min_p == 0:
        return None
    size = len(weights) if top_k == 0 else min(top_k, len(weights))
    ids = _heaviest(weights, size) if top_k else None
    if top_p < 1:
        ids = _nucleus(weights, top_p) if ids is None else _prefix_of_mass(weights, ids, top_p)
    if min_p:
        if ids is None:
            ids = _sorted(weights, np.flatnonzero(weights >= min_p * weights.max()))
        else:
            ids = ids[weights[ids] >= min_p * weights[ids[0]]]
    return ids


def _heaviest(weights: Floats, count: int) -> Ids:
    """The `count` heaviest ids, heaviest first, ties by id."""
    if count >= len(weights):
        return _sorted(weights, np.arange(len(weights)))
    threshold = np.partition(weights, len(weights) - count)[len(weights) - count]
    above = _sorted(weights, np.flatnonzero(weights > threshold))
    return np.concatenate([above, np.flatnonzero(weights == threshold)[: count - len(above)]])


def _sorted(weights: Floats, ids: Ids) -> Ids:
    """`ids`, which ascend, by weight: heaviest first, and ties stay in the order of ids."""
    return ids[np.argsort(-weights[ids], kind="stable")]


def _nucleus(weights: Floats, top_p: float) -> Ids:
    """The shortest run of heaviest ids that holds `top_p` of all the weight."""
    target = top_p * weights.sum()
    count = _NUCLEUS_FIRST
    while True:
        ids = _heaviest(weights, count)
        sums = np.cumsum(weights[ids])
        if sums[-1] >= target or count >= len(weights):
            return ids[: int(np.searchsorted(sums, target)) + 1]
        count *= 8


def _prefix_of_mass(weights: Floats, ids: Ids, top_p: float) -> Ids:
    sums = np.cumsum(weights[ids])
    return ids[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]


def draw(seed: int, position: int) -> float:
    """A number in [0, 1), a function of (seed, position): 53 bits of Philox4x64 with the seed as
    its key and the position in its counter's highest word, which its own counting never reaches.
    """
    generator = np.random.Philox(key=seed & _UINT64, counter=[0, 0, 0, position])
    return float(int(generator.random_raw()) >> 11) * 2.0**-53


def logprobs(allowed: Logits, token: int, top: int) -> tuple[Logprob, list[Logprob]]:
    """The log-probability of `token`, and those of the `top` likeliest tokens, likeliest first.

    They are the model's, at temperature 1 and before bias and penalties, over the ids that `allow`
    left. Ids without a chance are not listed.
    """
    logits = allowed.astype(np.float64)
    logits -= logits.max()
    logits -= np.log(np.exp(logits).sum())
    listed = [Logprob(int(i), float(logits[i])) for i in _heaviest(logits, top)] if top else []
    possible = [entry for entry in listed if np.isfinite(entry.logprob)]
    return Logprob(token, float(logits[token])), possible


def check_sampler(asked: Sampler, tokenizer: Tokenizer) -> None:
    """Raises ContentError for a parameter out of its range, LimitExceeded for too many biases."""
    ranges = {
        "temperature_ppm": (asked.temperature_ppm, 0, _FACTOR_PPM_MAX),
        "top_k": (asked.top_k, 0, 2**31),
        "top_p_ppm": (asked.top_p_ppm, 0, PPM),
        "min_p_ppm": (asked.min_p_ppm, 0, PPM),
        "repeat_penalty_ppm": (asked.repeat_penalty_ppm, 1, _FACTOR_PPM_MAX),
        "frequency_penalty_ppm": (asked.frequency_penalty_ppm, -_FACTOR_PPM_MAX, _FACTOR_PPM_MAX),
        "presence_penalty_ppm": (asked.presence_penalty_ppm, -_FACTOR_PPM_MAX, _FACTOR_PPM_MAX),
    }
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            raise ContentError(f"{name} is {value}: it goes from {low} to {high}", parameter=name)
    if len(asked.logit_bias) > BIASES_MAX:
        raise LimitExceeded(f"{len(asked.logit_bias)} logit biases: at most {BIASES_MAX}")
    for entry in asked.logit_bias:
        if len(entry) != 2 or abs(entry[1]) > _FACTOR_PPM_MAX:
            raise ContentError(
                f"a logit bias is [token id, bias in millionths up to {_FACTOR_PPM_MAX}], not "
                f"{entry!r:.40}",
                parameter="logit_bias",
            )
    check_outside_ids(tuple(token for token, _ in asked.logit_bias), tokenizer)
