"""The parameters of a generation: everything that its result depends on, and no text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol.derivation import Parameters
from protocol.errors import ContentError
from protocol.generation import generation_parameters, named_texts, sampler_of, seed_of
from protocol.ids import TextId
from protocol.messages.worker import GREEDY, Sampler
from protocol.record import object_id

WARM = structs.replace(GREEDY, temperature_ppm=700_000, top_k=40, logit_bias=[[9, -5], [2, 7]])


def parameters(sampler: Sampler = WARM, **changes: Any) -> Parameters:
    fields: dict[str, Any] = {
        "tokens_max": 8,
        "stop_ids": [4, 1],
        "stop_texts": ["\nQ:"],
        "stops": ["secret words"],
        "deliver_trim": True,
        **changes,
    }
    return generation_parameters(sampler, **fields)


@pytest.mark.req("DRV-1", "KV-9")
def test_whatever_the_answer_depends_on_changes_the_id() -> None:
    ids = [
        object_id(parameters()),
        object_id(parameters(tokens_max=9)),
        object_id(parameters(stop_ids=[4])),
        object_id(parameters(stop_texts=[])),
        object_id(parameters(stops=[])),
        object_id(parameters(deliver_trim=False)),
        *(
            object_id(parameters(structs.replace(WARM, **{name: value + 1})))
            for name, value in structs.asdict(WARM).items()
            if isinstance(value, int)
        ),
        object_id(parameters(structs.replace(WARM, logit_bias=[[9, -5]]))),
    ]
    assert len(set(ids)) == len(ids) == 14
    # And what it does not depend on does not: the order of things, and a seed, which stands apart.
    same = structs.replace(WARM, logit_bias=[[2, 7], [9, -5]], seed=5)
    assert parameters(same, stop_ids=[1, 4, 4]) == parameters()


@pytest.mark.req("DRV-7")
def test_texts_stand_there_as_ids() -> None:
    values = parameters().values
    assert values["stops"] == str(TextId.of(b"secret words")) == named_texts(["secret words"])
    assert "secret" not in str(values)


BIASES = st.dictionaries(st.integers(0, 10**6), st.integers(-(10**9), 10**9), max_size=4).map(
    lambda biases: [[token, ppm] for token, ppm in sorted(biases.items())]
)


@given(
    st.builds(
        Sampler,
        temperature_ppm=st.integers(0, 10**9),
        top_k=st.integers(0, 2**31),
        top_p_ppm=st.integers(0, 10**6),
        min_p_ppm=st.integers(0, 10**6),
        repeat_penalty_ppm=st.integers(1, 10**9),
        frequency_penalty_ppm=st.integers(-(10**9), 10**9),
        presence_penalty_ppm=st.integers(-(10**9), 10**9),
        logit_bias=BIASES,
    )
)
def test_a_sampler_comes_back(sampler: Sampler) -> None:
    assert sampler_of(parameters(sampler)) == sampler


def test_other_parameters_are_no_generations() -> None:
    with pytest.raises(ContentError, match="no parameters of a generation"):
        sampler_of(Parameters(v=1, values={}))
    spoilt = dict(parameters().values, logit_bias="x")
    with pytest.raises(ContentError, match="no parameters of a generation"):
        sampler_of(Parameters(v=1, values=spoilt))


@pytest.mark.req("KV-9")
def test_a_greedy_answer_depends_on_no_seed() -> None:
    assert (seed_of(GREEDY, 77), seed_of(WARM, 77)) == (0, 77)
