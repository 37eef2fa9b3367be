"""Chat messages become blocks: one message is one block, whatever its shape."""

from __future__ import annotations

import msgspec
import pytest

from actors.gateway.messages import Message, answer_block, message_blocks, prompt_block
from protocol.blocks import BlockType, Role
from protocol.errors import ContentError
from protocol.ids import TextId


def blocks_of(*messages: dict[str, object]) -> list[tuple[Role, BlockType, str, bool]]:
    made = message_blocks(msgspec.convert(list(messages), list[Message]))
    for new in made:
        # The content that goes with a block is the one that its id is made from.
        assert TextId.of(new.content) == new.block.source.object
    return [(n.block.role, n.block.type, n.content.decode(), n.block.trust) for n in made]


@pytest.mark.req("SRV-1")
def test_every_role_has_its_block() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    assert blocks_of(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "time?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
        {"role": "assistant", "content": "Noon."},
    ) == [
        (Role.SYSTEM, BlockType.INSTRUCTION, "be brief", True),
        (Role.SYSTEM, BlockType.INSTRUCTION, "be kind", True),
        (Role.USER, BlockType.USER_TURN, "time?", True),
        (Role.MODEL, BlockType.TOOL_CALL, "{}", True),
        (Role.TOOL, BlockType.TOOL_RESULT, "12:00", False),
        (Role.MODEL, BlockType.MODEL_TURN, "Noon.", True),
    ]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_parts_are_the_text_they_join_to(role: str) -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    assert blocks_of({"role": role, "content": parts}) == blocks_of(
        {"role": role, "content": "a b"}
    )


def test_an_assistant_may_speak_and_call() -> None:
    calls = [
        {"id": "1", "function": {"name": "f", "arguments": "{}"}},
        {"id": "2", "function": {"name": "g", "arguments": "[]"}},
    ]
    made = message_blocks(
        msgspec.convert(
            [{"role": "assistant", "content": "Wait.", "tool_calls": calls}], list[Message]
        )
    )
    assert [new.block.type for new in made] == [
        BlockType.MODEL_TURN,
        BlockType.TOOL_CALL,
        BlockType.TOOL_CALL,
    ]
    assert [new.block.rendering for new in made[1:]] == [
        {"tool": "f", "call": "1"},
        {"tool": "g", "call": "2"},
    ]


def test_a_tool_result_names_the_tool_that_was_called() -> None:
    call = {"id": "c1", "function": {"name": "clock", "arguments": "{}"}}
    made = message_blocks(
        msgspec.convert(
            [
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
            ],
            list[Message],
        )
    )
    assert made[-1].block.rendering == {"tool": "clock", "call": "c1"}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "x", "tool_call_id": "?"}], "messages[0].tool_call_id"),
        (
            [
                {
                    "role": "user",
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}],
                }
            ],
            "messages[0].tool_calls",
        ),
    ],
)
def test_what_is_refused_is_named(messages: list[dict[str, object]], param: str) -> None:
    with pytest.raises(ContentError) as caught:
        message_blocks(msgspec.convert(messages, list[Message]))
    assert caught.value.details["param"] == param


def test_an_answer_is_the_block_that_the_next_request_sends() -> None:
    sent = message_blocks([Message(role="assistant", content="Noon.")])
    assert answer_block("Noon.") == sent[0]


def test_a_prompt_block_is_never_an_instruction() -> None:
    assert prompt_block("x").block.type is BlockType.OTHER
