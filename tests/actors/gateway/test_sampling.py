"""Sampling parameters: exact conversion, and refusals that name the parameter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.sampling import RANGES, SamplingFields, for_choice, sampler_of
from protocol.errors import ContentError
from tests.fake_tokenizer import DENY, VOCABULARY_TOKENS, FakeTokenizer

TOKENIZER = FakeTokenizer()


def test_absent_is_the_documented_default() -> None:
    sampler = sampler_of(SamplingFields(), TOKENIZER)
    assert sampler.temperature_ppm == 1_000_000
    assert sampler.top_p_ppm == 1_000_000
    assert sampler.repeat_penalty_ppm == 1_000_000
    assert (sampler.top_k, sampler.min_p_ppm, sampler.logit_bias, sampler.seed) == (0, 0, [], None)


@given(st.sampled_from(sorted(RANGES)), st.floats(allow_nan=True, allow_infinity=True))
def test_a_value_is_carried_in_millionths_or_refused_by_name(name: str, value: float) -> None:
    low, high = RANGES[name]
    fields = SamplingFields(**{name: value})
    if low <= value <= high and not (name == "top_p" and value == 0):
        sampler = sampler_of(fields, TOKENIZER)
        carried = {"repetition_penalty": "repeat_penalty_ppm"}.get(name, f"{name}_ppm")
        assert abs(getattr(sampler, carried) - value * 1_000_000) <= 1
    else:
        with pytest.raises(ContentError) as caught:
            sampler_of(fields, TOKENIZER)
        assert caught.value.details["param"] == name


@pytest.mark.req("ASM-3")
@pytest.mark.parametrize("token", [*sorted(DENY), VOCABULARY_TOKENS, 10**9])
def test_no_bias_reaches_a_control_token(token: int) -> None:
    with pytest.raises(ContentError) as caught:
        sampler_of(SamplingFields(logit_bias={str(token): 100.0}), TOKENIZER)
    assert caught.value.details["param"] == "logit_bias"


def test_a_bias_is_carried_by_id() -> None:
    sampler = sampler_of(SamplingFields(logit_bias={"98": -100, "97": 1.5}), TOKENIZER)
    assert sampler.logit_bias == [[97, 1_500_000], [98, -100_000_000]]


@pytest.mark.parametrize("key", ["", "x", "-1", "1.0", "٣", " 1", "9" * 5000])
def test_a_bias_key_is_a_decimal_id(key: str) -> None:
    with pytest.raises(ContentError) as caught:
        sampler_of(SamplingFields(logit_bias={key: 1.0}), TOKENIZER)
    assert caught.value.details["param"] == "logit_bias"


@pytest.mark.parametrize("bias", [100.1, -101.0, float("nan")])
def test_a_bias_goes_to_one_hundred(bias: float) -> None:
    with pytest.raises(ContentError):
        sampler_of(SamplingFields(logit_bias={"1": bias}), TOKENIZER)


@pytest.mark.parametrize(("asked", "carried"), [(None, 0), (-1, 0), (0, 0), (40, 40)])
def test_top_k_is_off_below_one(asked: int | None, carried: int) -> None:
    assert sampler_of(SamplingFields(top_k=asked), TOKENIZER).top_k == carried


@pytest.mark.parametrize("name", ["seed", "top_k"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_huge_integers_are_refused_without_being_printed(name: str, value: int) -> None:
    with pytest.raises(ContentError) as caught:
        sampler_of(SamplingFields(**{name: value}), TOKENIZER)
    assert len(caught.value.message) < 200


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_seed_fits_a_worker(seed: int) -> None:
    made = sampler_of(SamplingFields(seed=seed), TOKENIZER).seed
    assert made is not None
    assert 0 <= made < 2**63
    if seed >= 0:
        assert made == seed


@pytest.mark.req("SRV-6")
def test_choices_have_seeds_of_their_own_and_the_first_has_the_given_one() -> None:
    sampler = sampler_of(SamplingFields(seed=7), TOKENIZER)
    seeds = [for_choice(sampler, index).seed for index in range(8)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 8
    assert seeds == [for_choice(sampler, index).seed for index in range(8)]


def test_without_a_seed_each_choice_draws_its_own() -> None:
    sampler = sampler_of(SamplingFields(), TOKENIZER)
    assert [for_choice(sampler, index).seed for index in range(3)] == [None] * 3


def test_an_absent_temperature_is_the_models_own() -> None:
    silent = sampler_of(SamplingFields(), TOKENIZER, temperature_default=0.25)
    assert silent.temperature_ppm == 250_000
    asked = sampler_of(SamplingFields(temperature=0.0), TOKENIZER, temperature_default=0.25)
    assert asked.temperature_ppm == 0
