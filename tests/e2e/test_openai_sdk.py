"""The official OpenAI client against a running service.

Nothing here depends on what the model says: a test holds for any model under any profile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import openai
import pytest
from openai import AsyncOpenAI

PROMPT: list[Any] = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "What is the capital of France? Grüße, 🐦."},
]


class AnyService(Protocol):
    base_url: str
    operator_key: str


@pytest.fixture
async def sdk(service: AnyService) -> AsyncIterator[AsyncOpenAI]:
    url = f"{service.base_url}/v1"
    async with AsyncOpenAI(
        base_url=url, api_key=service.operator_key, max_retries=0, timeout=120
    ) as client:
        yield client


@pytest.fixture
async def model(sdk: AsyncOpenAI) -> str:
    """The first model that is listed."""
    listed = [each async for each in sdk.models.list()]
    assert listed
    shown = await sdk.models.retrieve(listed[0].id)
    assert shown.id == listed[0].id
    return shown.id


@pytest.mark.req("SRV-1")
async def test_a_chat_and_its_stream_say_the_same(sdk: AsyncOpenAI, model: str) -> None:
    """F4, F8, F11, F12: the concatenation is the whole answer, and usage is counted alike."""
    ask: dict[str, Any] = {
        "model": model,
        "messages": PROMPT,
        "temperature": 0,
        "max_tokens": 24,
        "seed": 1,
    }
    whole = await sdk.chat.completions.create(**ask)
    choice = whole.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert whole.usage is not None
    assert 1 <= whole.usage.completion_tokens <= 24
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

    stream = await sdk.chat.completions.create(
        **ask, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content
    assert "\ufffd" not in text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == choice.finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


@pytest.mark.req("SRV-1")
async def test_the_context_has_an_id(sdk: AsyncOpenAI, model: str) -> None:
    contexts = []
    for stream in (False, True):
        raw = await sdk.chat.completions.with_raw_response.create(
            model=model, messages=PROMPT, max_tokens=1, stream=stream
        )
        contexts.append(raw.headers["huginn-context"])
        assert raw.headers["x-request-id"]
        if stream:
            await raw.http_response.aread()
    assert contexts[0].startswith("ctx:")
    assert contexts[0] == contexts[1]


@pytest.mark.req("SRV-6")
async def test_a_stop_text_is_never_delivered(sdk: AsyncOpenAI, model: str) -> None:
    """F1, F3: taken from the middle of what the model says by itself."""
    ask: dict[str, Any] = {
        "model": model,
        "messages": PROMPT,
        "temperature": 0,
        "max_tokens": 24,
    }
    text = (await sdk.chat.completions.create(**ask)).choices[0].message.content or ""
    assert len(text) >= 4, "the model said too little to be stopped"
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    whole = await sdk.chat.completions.create(**ask, stop=[stop, "never said \x00"])
    assert whole.choices[0].finish_reason == "stop"
    said = whole.choices[0].message.content or ""
    assert stop not in said
    assert text.startswith(said)
    stream = await sdk.chat.completions.create(**ask, stop=stop, stream=True)
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(parts) == said


@pytest.mark.req("SRV-6")
async def test_a_seed_repeats_and_choices_differ(sdk: AsyncOpenAI, model: str) -> None:
    """D7, D8, G12."""

    async def texts(**more: Any) -> list[str]:
        made = await sdk.chat.completions.create(
            model=model, messages=PROMPT, temperature=1.5, max_tokens=16, **more
        )
        assert [choice.index for choice in made.choices] == list(range(more.get("n", 1)))
        return [choice.message.content or "" for choice in made.choices]

    three = await texts(n=3, seed=11)
    assert three == await texts(n=3, seed=11)
    assert len(set(three)) > 1
    assert (await texts(seed=11)) == three[:1]


@pytest.mark.req("SRV-6")
async def test_log_probabilities_spell_the_answer(sdk: AsyncOpenAI, model: str) -> None:
    """G7."""
    made = await sdk.chat.completions.create(
        model=model,
        messages=PROMPT,
        temperature=0,
        max_tokens=8,
        logprobs=True,
        top_logprobs=3,
    )
    logprobs = made.choices[0].logprobs
    assert logprobs is not None
    content = logprobs.content
    assert content
    spelled = b"".join(bytes(token.bytes or []) for token in content)
    assert (made.choices[0].message.content or "").strip().encode() in spelled
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.logprob <= max(top.logprob for top in token.top_logprobs) + 1e-6


@pytest.mark.req("SRV-1")
async def test_text_completions(sdk: AsyncOpenAI, model: str) -> None:
    made = await sdk.completions.create(
        model=model, prompt=["Q: What is 1+1?\nA:", "Once"], max_tokens=6, temperature=0
    )
    assert [choice.index for choice in made.choices] == [0, 1]
    stream = await sdk.completions.create(
        model=model, prompt="Once", max_tokens=6, temperature=0, stream=True
    )
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == made.choices[1].text


@pytest.mark.req("SRV-1")
async def test_conversations_of_every_shape(sdk: AsyncOpenAI, model: str) -> None:
    """G1, G2, G3, G4, G9, G10: none is an error."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    shapes: list[list[Any]] = [
        [{"role": "system", "content": "x"}],
        [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}],
        [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "y"},
        ],
    ]
    for messages in shapes:
        made = await sdk.chat.completions.create(
            model=model, messages=messages, max_completion_tokens=1, stop=None, n=None
        )
        assert made.usage is not None
        assert made.usage.completion_tokens <= 1


@pytest.mark.req("SRV-1", "SRV-6")
async def test_errors_are_the_clients_own_classes(
    sdk: AsyncOpenAI, model: str, service: AnyService
) -> None:
    create = sdk.chat.completions.create
    user: Any = [{"role": "user", "content": "x"}]
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for expected, fields in [
        (openai.NotFoundError, {"model": "no-such-model"}),
        (openai.BadRequestError, {"messages": []}),
        (openai.BadRequestError, {"temperature": 99}),
        (openai.BadRequestError, {"tools": [tool]}),
        (openai.BadRequestError, {"response_format": {"type": "json_object"}}),
        (openai.BadRequestError, {"logit_bias": {"999999999": 1}}),
        (openai.BadRequestError, {"messages": [{"role": "user", "content": "word " * 100_000}]}),
    ]:
        with pytest.raises(expected) as caught:
            await create(**({"model": model, "messages": user} | fields))  # type: ignore[arg-type]
        assert isinstance(caught.value, openai.APIStatusError)
        assert caught.value.code
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        await sdk.with_options(api_key="hg-wrong").models.list()


@pytest.mark.req("SRV-1")
async def test_an_abandoned_stream_leaves_the_service_well(sdk: AsyncOpenAI, model: str) -> None:
    """H1, H3, H5."""
    for _ in range(3):
        stream = await sdk.chat.completions.create(
            model=model, messages=PROMPT, max_tokens=64, stream=True
        )
        async for _chunk in stream:
            break
        await stream.close()
    made = await sdk.chat.completions.create(model=model, messages=PROMPT, max_tokens=1)
    assert made.choices


@pytest.mark.req("SRV-1")
async def test_a_response_goes_on_from_any_other(sdk: AsyncOpenAI, model: str) -> None:
    """Kept, branched, shown again, streamed in order, and forgotten."""
    ask: dict[str, Any] = {"model": model, "temperature": 0, "max_output_tokens": 12}
    first = await sdk.responses.create(**ask, input="What is the capital of France?")
    assert first.status in ("completed", "incomplete")
    assert await sdk.responses.retrieve(first.id) == first
    branches = [
        await sdk.responses.create(**ask, input=question, previous_response_id=first.id)
        for question in ("And of Spain?", "And of Spain?", "And of Peru?")
    ]
    assert branches[0].output_text == branches[1].output_text
    assert branches[0].usage is not None
    assert first.usage is not None
    assert branches[0].usage.input_tokens > first.usage.input_tokens
    items = [item async for item in await sdk.responses.input_items.list(branches[2].id)]
    assert len(items) == 3
    stream = await sdk.responses.create(
        **ask, input="And of Spain?", previous_response_id=first.id, stream=True
    )
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == branches[0].output_text
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    await sdk.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(first.id)
    unknown: dict[str, Any] = {"input": "hi", "previous_response_id": first.id}
    with pytest.raises(openai.BadRequestError):
        await sdk.responses.create(**ask, **unknown)
