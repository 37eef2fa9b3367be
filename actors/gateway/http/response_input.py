"""What a response is asked: its parameters and its input, as blocks.

An input is a text, or a list of items: messages, function calls and their outputs. Each item is
one message of a chat, so both dialects make the same blocks of the same conversation. What this
version does not implement is refused by name, as in chats.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from actors.gateway.http.errors import unsupported
from actors.gateway.http.extension import HuginnFields
from actors.gateway.http.terms import tokens_max_of
from actors.gateway.messages import ContentPart, FunctionCall, Message, ToolCall, message_blocks
from actors.gateway.models import ServedModel
from actors.gateway.sampling import SamplingFields, sampler_of
from actors.gateway.turns import Ask
from protocol.blocks import BlockType, Role, text_block
from protocol.errors import ContentError
from protocol.messages.ropes import NewBlock

# As OpenAI documents metadata.
METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_CHARS_MAX: Final = 64
METADATA_VALUE_CHARS_MAX: Final = 512
_UNIMPLEMENTED: Final = {
    "conversation": "a conversation here is a session: name it in huginn.session",
    "prompt": "stored prompt templates are not implemented in this version",
    "context_management": "a context is never shortened without being asked",
}


class InputItem(msgspec.Struct):
    """One item of an input; a message where `type` is absent. Null is absent."""

    type: str | None = None
    role: str | None = None
    content: str | list[ContentPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ContentPart] | None = None


class TextFormat(msgspec.Struct):
    type: str = "text"


class TextFields(msgspec.Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class ResponseRequest(SamplingFields, kw_only=True):
    """`POST /v1/responses`. Null is absent."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None
    text: TextFields | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    huginn: HuginnFields | None = None


def response_ask(body: ResponseRequest, model: ServedModel) -> Ask:
    """How the response is to be made. Raises ContentError or ApiError, with the name of the
    parameter, for a value that is out of range or not implemented."""
    _refuse_unimplemented(body)
    check_metadata(body.metadata or {})
    return Ask(
        sampler=sampler_of(body, model.tokenizer, temperature_default=model.temperature_default),
        stops=[],
        choices=1,
        tokens_max=tokens_max_of("max_output_tokens", body.max_output_tokens),
        logprobs_top=None,
        deliver_trim=True,
    )


def input_blocks(given: str | list[InputItem]) -> list[NewBlock]:
    """The blocks of an input, in order.

    Raises ContentError with detail `param` for an item that has no block: an empty input, a kind,
    role or part that does not exist here, an output without its call before it.
    """
    if isinstance(given, str):
        return message_blocks([Message(role="user", content=given)], "input")
    calls: set[str] = set()
    messages = [_message(item, f"input[{index}]", calls) for index, item in enumerate(given)]
    return message_blocks(messages, "input")


def instruction_blocks(instructions: str | None) -> list[NewBlock]:
    """What stands in front of the conversation, for one response alone."""
    if not instructions:
        return []
    block = text_block(Role.SYSTEM, BlockType.INSTRUCTION, instructions)
    return [NewBlock(block=block, content=instructions.encode("utf-8"))]


def check_metadata(metadata: dict[str, str]) -> None:
    """Raises ContentError for more or longer pairs than are kept."""
    if len(metadata) > METADATA_PAIRS_MAX:
        raise ContentError(
            f"metadata has {len(metadata)} pairs, at most {METADATA_PAIRS_MAX} are kept",
            param="metadata",
        )
    for key, value in metadata.items():
        if len(key) > METADATA_KEY_CHARS_MAX or len(value) > METADATA_VALUE_CHARS_MAX:
            raise ContentError(
                f"metadata {key!r:.80}: a key has at most {METADATA_KEY_CHARS_MAX} characters, a "
                f"value at most {METADATA_VALUE_CHARS_MAX}",
                param="metadata",
            )


def _refuse_unimplemented(body: ResponseRequest) -> None:
    if body.tools:
        raise unsupported("tools", "declaring tools is not implemented in this version")
    if body.tool_choice not in (None, "none", "auto"):
        raise unsupported("tool_choice", "calling tools is not implemented in this version")
    if body.text is not None and body.text.format is not None and body.text.format.type != "text":
        raise unsupported("text.format", "only type text is implemented in this version")
    if body.truncation not in (None, "disabled"):
        raise unsupported("truncation", "nothing is left out of a context without being asked")
    if body.background:
        raise unsupported("background", "a response is made while its client waits")
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or []):
        raise unsupported("top_logprobs", "a response tells no logprobs; a chat completion does")
    for name, reason in _UNIMPLEMENTED.items():
        if getattr(body, name):
            raise unsupported(name, reason)


def _message(item: InputItem, where: str, calls: set[str]) -> Message:
    """The chat message that an item is. `calls` are the ids of the calls so far, and grow."""
    match item.type:
        case None | "message":
            if item.role is None:
                raise ContentError(f"{where}: a message has a role", param=f"{where}.role")
            if item.role == "tool":
                raise ContentError(
                    f"{where}: what a tool gave is an item of type function_call_output",
                    param=f"{where}.role",
                )
            return Message(role=item.role, content=item.content)
        case "function_call":
            if item.call_id is None or item.name is None or item.arguments is None:
                raise ContentError(
                    f"{where}: a function_call has call_id, name and arguments", param=where
                )
            calls.add(item.call_id)
            function = FunctionCall(name=item.name, arguments=item.arguments)
            return Message(role="assistant", tool_calls=[ToolCall(item.call_id, function)])
        case "function_call_output":
            if item.call_id not in calls or item.output is None:
                raise ContentError(
                    f"{where}: a function_call_output has an output, and the call_id of a "
                    "function_call before it in this input",
                    param=f"{where}.call_id",
                )
            return Message(role="tool", content=item.output, tool_call_id=item.call_id)
        case _:
            raise ContentError(
                f"{where} is of type {item.type!r:.40}: message, function_call and "
                "function_call_output are read here",
                param=f"{where}.type",
            )
