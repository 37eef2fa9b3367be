"""Prompts and jobs: counted whole, cut to the context, one seed to each choice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel
from actors.gateway.turns import Ask, choice_response, encode_text, jobs, stream_ids, text_prompt
from protocol.errors import BudgetExceeded, ContentError
from protocol.messages.worker import GREEDY
from tests.fake_tokenizer import CONTROL, FakeTokenizer
from tests.scripted_worker import INFO


def model_of(context_tokens: int = 16, tokenizer: FakeTokenizer | None = None) -> ServedModel:
    info = replace(INFO, context_tokens=context_tokens)
    return ServedModel("raven", "p", "worker", info, tokenizer or FakeTokenizer(), 1)


def ask_of(**changes: object) -> Ask:
    terms: dict[str, object] = {
        "sampler": GREEDY,
        "stops": [],
        "choices": 1,
        "tokens_max": None,
        "logprobs_top": None,
        "deliver_trim": False,
    }
    return Ask(**(terms | changes))  # type: ignore[arg-type]


@pytest.mark.req("SRV-1")
def test_a_text_is_read_after_one_bos_and_ends_at_eos_alone() -> None:
    prompt = text_prompt(model_of(), "abc", tuple(b"abc"))
    assert stream_ids(prompt.segments) == [CONTROL["bos"], *b"abc"]
    assert prompt.tokens == 4
    assert (prompt.stop_ids, prompt.stop_texts, prompt.opener) == ([CONTROL["eos"]], [], b"")


def test_ids_and_the_text_that_they_spell_are_one_prompt() -> None:
    text, ids = "né", tuple("né".encode())
    assert text_prompt(model_of(), None, ids) == text_prompt(model_of(), text, ids)


def test_a_vocabulary_without_bos_reads_the_text_alone() -> None:
    prompt = text_prompt(model_of(tokenizer=FakeTokenizer(control={})), "a", (97,))
    assert stream_ids(prompt.segments) == [97]
    assert prompt.stop_ids == []


def test_nothing_is_no_prompt() -> None:
    with pytest.raises(ContentError) as caught:
        text_prompt(model_of(), "", ())
    assert caught.value.details["param"] == "prompt"


def test_a_full_context_less_one_is_the_longest_prompt() -> None:
    model = model_of(context_tokens=5)
    prompt = text_prompt(model, "abc", tuple(b"abc"))
    assert jobs(prompt, ask_of(), model, "r", Limits())[0].tokens_max == 1
    with pytest.raises(BudgetExceeded) as caught:
        text_prompt(model, "abcd", tuple(b"abcd"))
    assert "5" in caught.value.message
    assert caught.value.details == {"tokens": 5, "tokens_max": 4}


def test_an_answer_is_as_long_as_asked_or_as_there_is_room() -> None:
    model = model_of(context_tokens=16)
    prompt = text_prompt(model, "abc", tuple(b"abc"))
    limits = Limits(answer_tokens_default=7)
    for asked, given in ((None, 7), (3, 3), (12, 12), (13, 12), (10**9, 12)):
        assert jobs(prompt, ask_of(tokens_max=asked), model, "r", limits)[0].tokens_max == given


def test_each_choice_is_a_job_with_its_own_name_and_seed() -> None:
    model = model_of()
    prompt = text_prompt(model, "abc", tuple(b"abc"))
    sampler = replace(GREEDY, seed=1)
    made = jobs(prompt, ask_of(choices=3, sampler=sampler), model, "r", Limits(), first=2)
    assert [job.response for job in made] == ["r-2", "r-3", "r-4"]
    assert len({job.sampler.seed for job in made}) == 3
    assert choice_response("r", 0) == "r"


async def test_long_text_is_tokenized_just_as_short_text_is() -> None:
    tokenizer = FakeTokenizer()
    for text in ("é", "é" * 10_000):
        assert await encode_text(tokenizer, text) == tokenizer.encode(text)
