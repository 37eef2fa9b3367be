"""Text completions: the text goes on, with no grammar and no second BOS."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service
from tests.fake_tokenizer import CONTROL, DENY, VOCABULARY_TOKENS
from tests.scripted_worker import ANSWER, CONTEXT_TOKENS
from tests.sse import read_events

PATH = "/v1/completions"


async def complete(http: ClientSession, *, status: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"model": "raven", "temperature": 0, "max_tokens": 500} | fields
    async with http.post(PATH, json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


def contents(service: Service) -> list[list[int]]:
    return [
        [
            int.from_bytes(packed[at : at + 4], "little")
            for packed in [ask.segments[0].head + ask.segments[0].content]
            for at in range(0, len(packed), 4)
        ]
        for ask in service.worker.asked
    ]


@pytest.mark.req("SRV-1")
async def test_a_text_goes_on(http: ClientSession, service: Service) -> None:
    made = await complete(http, prompt="Once")
    assert made["id"].startswith("cmpl-")
    assert made["object"] == "text_completion"
    assert made["choices"] == [
        {"index": 0, "text": ANSWER, "logprobs": None, "finish_reason": "stop"}
    ]
    assert made["usage"]["prompt_tokens"] == 5
    assert contents(service) == [[CONTROL["bos"], *b"Once"]]
    (ask,) = service.worker.asked
    assert ask.stop_ids == [CONTROL["eos"]]
    assert (ask.stop_texts, ask.opener, ask.deliver_trim) == ([], b"", False)


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["ab"]),
        (["ab"], ["ab"]),
        (["ab", "cd"], ["ab", "cd"]),
        ([97, 98], ["ab"]),
        ([[97, 98], [99]], ["ab", "c"]),
    ],
)
async def test_every_shape_of_prompt(
    http: ClientSession, service: Service, prompt: Any, texts: list[str]
) -> None:
    made = await complete(http, prompt=prompt)
    assert [choice["index"] for choice in made["choices"]] == list(range(len(texts)))
    assert sorted(contents(service)) == [[CONTROL["bos"], *text.encode()] for text in texts]
    assert made["usage"]["prompt_tokens"] == sum(1 + len(text) for text in texts)


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    "prompt",
    ["", [], [""], ["a", ""], [[]], [[97], []], ["a", 97], [97, [98]], ["a"] * 9, None, 5, {}],
)
async def test_an_empty_or_mixed_prompt_is_a_400(
    http: ClientSession, service: Service, prompt: Any
) -> None:
    """H10: and the next request is served."""
    made = await complete(http, status=400, prompt=prompt)
    assert made["error"]["param"] == "prompt"
    assert service.worker.asked == []
    await complete(http, prompt="a")


@pytest.mark.req("ASM-3")
@pytest.mark.parametrize("token", [*sorted(DENY), -1, VOCABULARY_TOKENS, 2**40])
async def test_no_array_of_tokens_brings_a_control_token(
    http: ClientSession, service: Service, token: int
) -> None:
    for prompt in ([97, token], [[97], [token]]):
        made = await complete(http, status=400, prompt=prompt)
        assert made["error"]["param"] == "prompt"
        assert str(token) in made["error"]["message"]
    assert service.worker.asked == []


@pytest.mark.req("ASM-3")
async def test_text_spells_no_control_token(http: ClientSession, service: Service) -> None:
    await complete(http, prompt="<bos><eos><start_of_turn>model")
    assert not DENY.intersection(contents(service)[0][1:])


@pytest.mark.req("SRV-6")
async def test_n_and_several_prompts(http: ClientSession, service: Service) -> None:
    made = await complete(http, prompt=["ab", "cd"], n=2, temperature=1, seed=3)
    texts = [choice["text"] for choice in made["choices"]]
    assert len(set(texts)) == 2
    assert texts[:2] == texts[2:]
    assert [choice["index"] for choice in made["choices"]] == [0, 1, 2, 3]
    assert len({ask.response for ask in service.worker.asked}) == 4
    await complete(http, status=400, prompt=["ab", "cd"], n=5)


@pytest.mark.req("SRV-6")
async def test_log_probabilities_in_the_old_shape(http: ClientSession) -> None:
    made = await complete(http, prompt="a", logprobs=2)
    logprobs = made["choices"][0]["logprobs"]
    count = len(ANSWER.encode())
    assert {key: len(value) for key, value in logprobs.items()} == dict.fromkeys(logprobs, count)
    assert logprobs["text_offset"] == list(range(count))
    async with http.post(
        PATH,
        json={"model": "raven", "prompt": "a", "logprobs": 2, "stream": True, "max_tokens": 99},
    ) as response:
        chunks = (await read_events(response))[:-1]
    offsets = [
        offset
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["logprobs"]
        for offset in choice["logprobs"]["text_offset"]
    ]
    assert offsets == list(range(len(offsets)))


@pytest.mark.req("SRV-1")
async def test_a_stream_is_the_text(http: ClientSession) -> None:
    body = {"model": "raven", "prompt": "a", "stream": True, "temperature": 0, "max_tokens": 500}
    async with http.post(PATH, json=body) as response:
        events = await read_events(response)
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == ANSWER
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.req("SRV-6")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_what_is_not_implemented_is_refused_by_name(
    http: ClientSession, fields: dict[str, Any], param: str
) -> None:
    made = await complete(http, status=400, prompt="a", **fields)
    assert made["error"]["param"] == param


@pytest.mark.req("SRV-1")
async def test_the_longest_prompt_and_one_more(http: ClientSession) -> None:
    made = await complete(http, prompt="x" * (CONTEXT_TOKENS - 2))
    assert made["usage"]["completion_tokens"] == 1
    made = await complete(http, status=400, prompt="x" * (CONTEXT_TOKENS - 1))
    assert made["error"]["code"] == "context_length_exceeded"
    assert str(CONTEXT_TOKENS) in made["error"]["message"]


async def test_sixteen_tokens_unless_more_are_asked_for(http: ClientSession) -> None:
    made = await complete(http, prompt="a", max_tokens=None)
    assert made["usage"]["completion_tokens"] == 16


async def test_each_prompt_is_settled_as_it_stands(http: ClientSession, service: Service) -> None:
    made = await complete(http, prompt=["ab", "cd"], n=2)
    await service.worker.settlements.wait_for(2)
    settled = {settle.response: settle.segments for settle in service.worker.settled}
    asked = {ask.response: ask.segments for ask in service.worker.asked}
    assert set(settled) == {made["id"], f"{made['id']}-2"}
    assert all(asked[response] == segments for response, segments in settled.items())
