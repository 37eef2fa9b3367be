"""What a generation depends on besides the state it begins at: its parameters, spelled out.

The parameters of `generate` are integers and ids, so that they can be kept beside evidence without
saying what a prompt says: texts that end an answer stand there as their TextIds. A greedy answer
draws nothing, so its seed is 0, whichever it was given.

Sources: DRV-2, DRV-7, KV-9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.derivation import Parameters
from protocol.errors import ContentError
from protocol.ids import TextId
from protocol.messages.worker import Sampler

_NUMBERS: Final = (
    "temperature_ppm",
    "top_k",
    "top_p_ppm",
    "min_p_ppm",
    "repeat_penalty_ppm",
    "frequency_penalty_ppm",
    "presence_penalty_ppm",
)


def generation_parameters(
    sampler: Sampler,
    *,
    tokens_max: int,
    stop_ids: Iterable[int],
    stop_texts: Iterable[str],
    stops: Iterable[str],
    deliver_trim: bool,
) -> Parameters:
    """The parameters of an answer of at most `tokens_max` tokens, which ends as `Generate` says."""
    biases = sorted({token: ppm for token, ppm in sampler.logit_bias}.items())
    values: dict[str, int | str | bool] = {name: getattr(sampler, name) for name in _NUMBERS}
    return Parameters(
        v=1,
        values={
            **values,
            "logit_bias": ",".join(f"{token}:{ppm}" for token, ppm in biases),
            "tokens_max": tokens_max,
            "stop_ids": ",".join(map(str, sorted(set(stop_ids)))),
            "stop_texts": named_texts(stop_texts),
            "stops": named_texts(stops),
            "deliver_trim": deliver_trim,
        },
    )


def sampler_of(parameters: Parameters) -> Sampler:
    """The sampler in such parameters, without a seed. Raises ContentError for others."""
    values = parameters.values
    try:
        biases = [pair.partition(":") for pair in str(values["logit_bias"]).split(",") if pair]
        return Sampler(
            **{name: int(values[name]) for name in _NUMBERS},
            logit_bias=[[int(token), int(ppm)] for token, _, ppm in biases],
        )
    except (KeyError, ValueError) as error:
        raise ContentError(f"these are no parameters of a generation: {error!r:.80}") from error


def seed_of(sampler: Sampler, seed: int) -> int:
    """The seed that the answer depends on."""
    return seed if sampler.temperature_ppm else 0


def named_texts(texts: Iterable[str]) -> str:
    """How texts stand in parameters: their ids, sorted."""
    return ",".join(sorted({str(TextId.of(text.encode("utf-8"))) for text in texts}))
