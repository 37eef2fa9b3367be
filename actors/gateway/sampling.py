"""Sampling parameters: from the floats that clients send to the integers that a worker takes."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from protocol.errors import ContentError
from protocol.messages.worker import Sampler
from protocol.tokenizer import Tokenizer, check_outside_ids

_PPM: Final = 1_000_000
# A worker takes seeds of 63 bits; a client's negative seed is its two's complement, less the sign.
_SEED_MASK: Final = 2**63 - 1
SEED_MIN: Final = -(2**63)
SEED_MAX: Final = 2**63 - 1
TOP_K_MAX: Final = 1_000_000
# What OpenAI documents: a bias of ±100 bans or forces a token.
BIAS_MAX: Final = 100.0
BIASES_MAX: Final = 1024
# Lowest and highest value of each parameter. Where the low end means "off", it is accepted.
RANGES: Final[dict[str, tuple[float, float]]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
}


class SamplingFields(msgspec.Struct, kw_only=True):
    """The parameters that chat and text completions share. Null is absent."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None


def sampler_of(
    fields: SamplingFields, tokenizer: Tokenizer, *, temperature_default: float = 1.0
) -> Sampler:
    """The sampler that `fields` ask for. An absent temperature is the model's own default, all else
    is off when absent, as OpenAI documents.

    Raises ContentError with detail `param` for a value out of range, and for a bias on an id that
    content may not hold.
    """
    for name, (low, high) in RANGES.items():
        value = getattr(fields, name)
        if value is not None and not low <= value <= high:
            raise ContentError(f"{name} is {value}, it goes from {low} to {high}", param=name)
    if fields.top_p == 0:
        raise ContentError("top_p is 0, which leaves no token; 1 turns it off", param="top_p")
    # -1 is how other servers write "off".
    if fields.top_k is not None and not -1 <= fields.top_k <= TOP_K_MAX:
        raise ContentError(f"top_k goes from 0 (off) to {TOP_K_MAX}", param="top_k")
    if fields.seed is not None and not SEED_MIN <= fields.seed <= SEED_MAX:
        raise ContentError("seed is an integer of 64 bits, signed", param="seed")
    return Sampler(
        temperature_ppm=_ppm(fields.temperature, temperature_default),
        top_k=max(fields.top_k or 0, 0),
        top_p_ppm=max(_ppm(fields.top_p, 1.0), 1),
        min_p_ppm=_ppm(fields.min_p, 0.0),
        repeat_penalty_ppm=_ppm(fields.repetition_penalty, 1.0),
        frequency_penalty_ppm=_ppm(fields.frequency_penalty, 0.0),
        presence_penalty_ppm=_ppm(fields.presence_penalty, 0.0),
        logit_bias=_logit_bias(fields.logit_bias or {}, tokenizer),
        seed=None if fields.seed is None else fields.seed & _SEED_MASK,
    )


def for_choice(sampler: Sampler, index: int) -> Sampler:
    """The sampler of choice `index` of one request: the first has the seed that was given, each
    further one a seed derived from it. Without a seed each choice draws its own."""
    if index == 0 or sampler.seed is None:
        return sampler
    drawn = hashlib.sha256(
        b"huginn.choice-seed/1\0" + sampler.seed.to_bytes(8, "big") + index.to_bytes(4, "big")
    ).digest()
    return msgspec.structs.replace(sampler, seed=int.from_bytes(drawn[:8], "big") & _SEED_MASK)


def _ppm(value: float | None, default: float) -> int:
    return round((default if value is None else value) * _PPM)


def _logit_bias(biases: dict[str, float], tokenizer: Tokenizer) -> list[list[int]]:
    if len(biases) > BIASES_MAX:
        raise ContentError(
            f"logit_bias has {len(biases)} entries, at most {BIASES_MAX} are allowed",
            param="logit_bias",
        )
    pairs: list[list[int]] = []
    for key, bias in biases.items():
        # Not isdigit alone: that takes digits of every script, and int() refuses long texts.
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise ContentError(
                f"logit_bias key {key!r:.40} is not a token id in decimal", param="logit_bias"
            )
        if not -BIAS_MAX <= bias <= BIAS_MAX:
            raise ContentError(
                f"logit_bias of token {key} is {bias}, it goes from -{BIAS_MAX} to {BIAS_MAX}",
                param="logit_bias",
            )
        pairs.append([int(key), round(bias * _PPM)])
    try:
        check_outside_ids(tuple(token for token, _ in pairs), tokenizer)
    except ContentError as error:
        raise ContentError(f"logit_bias: {error.message}", param="logit_bias") from error
    return sorted(pairs)
