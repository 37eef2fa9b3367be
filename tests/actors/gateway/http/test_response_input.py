"""What a response is asked: items become the blocks that a chat would make of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.gateway.http.errors import ApiError
from actors.gateway.http.response_input import (
    InputItem,
    ResponseRequest,
    check_metadata,
    input_blocks,
    instruction_blocks,
    response_ask,
)
from actors.gateway.messages import Message, message_blocks
from actors.gateway.models import ServedModel
from protocol.blocks import BlockType, Role
from protocol.errors import ContentError
from tests.fake_tokenizer import FakeTokenizer
from tests.scripted_worker import INFO

SERVED = ServedModel("raven", "raven-exact", "worker", INFO, FakeTokenizer(), 1)
CALL = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}


def items(*given: dict[str, Any]) -> list[InputItem]:
    return msgspec.convert(list(given), list[InputItem])


def asked(**fields: Any) -> ResponseRequest:
    return msgspec.convert({"model": "raven", "input": "hi"} | fields, ResponseRequest)


@pytest.mark.req("SRV-1")
def test_a_text_is_what_the_user_says() -> None:
    said = message_blocks([Message(role="user", content="hi")])
    assert input_blocks("hi") == said
    assert input_blocks(items({"role": "user", "content": "hi"})) == said
    part = {"type": "input_text", "text": "hi"}
    assert input_blocks(items({"type": "message", "role": "user", "content": [part]})) == said


@pytest.mark.req("SRV-1")
def test_items_are_the_blocks_of_a_chat() -> None:
    part = {"type": "output_text", "text": "Noon.", "annotations": []}
    blocks = input_blocks(
        items(
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": "what time?"},
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "12:00"},
            {"id": "msg_1", "role": "assistant", "status": "completed", "content": [part]},
        )
    )
    assert [(new.block.role, new.block.type, new.content) for new in blocks] == [
        (Role.SYSTEM, BlockType.INSTRUCTION, b"be kind"),
        (Role.USER, BlockType.USER_TURN, b"what time?"),
        (Role.MODEL, BlockType.TOOL_CALL, b"{}"),
        (Role.TOOL, BlockType.TOOL_RESULT, b"12:00"),
        (Role.MODEL, BlockType.MODEL_TURN, b"Noon."),
    ]
    assert blocks[3].block.rendering == {"tool": "clock", "call": "c1"}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "input"),
        ([{"content": "x"}], "input[0].role"),
        ([{"role": "king", "content": "x"}], "input[0].role"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([{"type": "item_reference"}], "input[0].type"),
        ([{"type": "function_call", "name": "clock"}], "input[0]"),
        ([{"type": "function_call_output", "call_id": "c1", "output": "x"}], "input[0].call_id"),
        ([CALL, {"type": "function_call_output", "call_id": "c1"}], "input[1].call_id"),
        (
            [{"role": "user", "content": [{"type": "input_image"}]}],
            "input[0].content[0].type",
        ),
        (
            [{"role": "user", "content": [{"type": "input_text"}]}],
            "input[0].content[0].text",
        ),
    ],
)
def test_an_item_without_a_block_is_named(given: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(ContentError) as raised:
        input_blocks(items(*given))
    assert raised.value.details["param"] == param


def test_instructions_are_one_block_or_none() -> None:
    assert instruction_blocks(None) == instruction_blocks("") == []
    (block,) = instruction_blocks("be brief")
    assert (block.block.type, block.content) == (BlockType.INSTRUCTION, b"be brief")


@pytest.mark.req("SRV-6")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"truncation": "auto"}, "truncation"),
        ({"background": True}, "background"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ],
)
def test_what_is_not_implemented_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        response_ask(asked(**fields), SERVED)
    assert (raised.value.status, raised.value.body.error.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"metadata": {str(index): "" for index in range(17)}}, "metadata"),
    ],
)
def test_a_value_out_of_range_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ContentError) as raised:
        response_ask(asked(**fields), SERVED)
    assert raised.value.details["param"] == param


@pytest.mark.req("SRV-6")
def test_what_asks_for_nothing_is_taken() -> None:
    ask = response_ask(
        asked(
            tools=[],
            tool_choice="auto",
            text={"format": {"type": "text"}},
            truncation="disabled",
            background=False,
            include=["reasoning.encrypted_content"],
            top_logprobs=0,
            max_output_tokens=7,
            temperature=0.5,
            top_p=0.9,
            metadata={"a": "b"},
        ),
        SERVED,
    )
    assert (ask.tokens_max, ask.choices, ask.stops) == (7, 1, [])
    assert (ask.sampler.temperature_ppm, ask.sampler.top_p_ppm) == (500_000, 900_000)


def test_metadata_has_its_bounds() -> None:
    check_metadata({"k" * 64: "v" * 512} | {str(index): "" for index in range(15)})
    for pair in ({"k" * 65: ""}, {"k": "v" * 513}):
        with pytest.raises(ContentError, match="metadata"):
            check_metadata(pair)
