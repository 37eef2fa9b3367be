"""Chat messages become blocks: one message is one block, and each tool call a block of its own.

| role | block |
|---|---|
| system, developer | an instruction that may instruct (trusted) |
| user | a user turn |
| assistant | a model turn, exact-text; then one tool call for each of `tool_calls` |
| tool | a tool result, not trusted |

A message's text parts are joined before anything is tokenized. What is said twice in a row by one
role stays two blocks: how they are folded into turns is the grammar's business, so no order of
roles is an error.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.errors import ContentError
from protocol.grammars.tools import call_block, result_block
from protocol.messages.ropes import NewBlock


class ContentPart(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct):
    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: FunctionCall
    type: str | None = None


class Message(msgspec.Struct):
    """A chat message as clients send it; null is absent, unknown fields are nobody's concern."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


# Part types that hold text, and the field that it stands in.
_TEXT_PARTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
_ROLES: Final = {
    "system": (Role.SYSTEM, BlockType.INSTRUCTION),
    "developer": (Role.SYSTEM, BlockType.INSTRUCTION),
    "user": (Role.USER, BlockType.USER_TURN),
    "assistant": (Role.MODEL, BlockType.MODEL_TURN),
    "tool": (Role.TOOL, BlockType.TOOL_RESULT),
}


def answer_block(text: str) -> NewBlock:
    """The block of an answer as it was delivered, just as the client's next request will send
    it back: exact-text, so that ids depend on the messages alone."""
    return _whole(text_block(Role.MODEL, BlockType.MODEL_TURN, text), text)


def prompt_block(text: str) -> NewBlock:
    """The block of a text completion's prompt, which no grammar ever renders."""
    return _whole(text_block(Role.USER, BlockType.OTHER, text), text)


def _whole(block: ContextBlock, text: str) -> NewBlock:
    # `block` was made from `text`, so it is Unicode.
    return NewBlock(block=block, content=text.encode("utf-8"))


def message_blocks(messages: list[Message], field: str = "messages") -> list[NewBlock]:
    """The blocks of a conversation, in order; `field` is where a body has it, for errors.

    Raises ContentError with detail `param` for an empty conversation, a role or part type that
    does not exist here, and a tool message that answers no call before it.
    """
    if not messages:
        raise ContentError("a conversation has at least one message", param=field)
    blocks: list[NewBlock] = []
    call_to_tool: dict[str, str] = {}
    for index, message in enumerate(messages):
        where = f"{field}[{index}]"
        if message.role not in _ROLES:
            raise ContentError(
                f"{where}.role {message.role!r:.40} is not one of {', '.join(_ROLES)}",
                param=f"{where}.role",
            )
        if message.tool_calls and message.role != "assistant":
            raise ContentError(
                f"{where}: only an assistant message has tool_calls", param=f"{where}.tool_calls"
            )
        text = _text(message, where)
        if message.role == "tool":
            blocks.append(_tool_result(message, text, call_to_tool, where))
            continue
        role, kind = _ROLES[message.role]
        # An assistant that only called tools said nothing: there is no turn of text to keep.
        if text or not message.tool_calls:
            blocks.append(_whole(text_block(role, kind, text, name=message.name), text))
        for call in message.tool_calls or []:
            call_to_tool[call.id] = call.function.name
            name, arguments = call.function.name, call.function.arguments
            blocks.append(_whole(*call_block(name, arguments, call=call.id)))
    return blocks


def _tool_result(message: Message, text: str, call_to_tool: dict[str, str], where: str) -> NewBlock:
    call = message.tool_call_id
    if call is None or call not in call_to_tool:
        raise ContentError(
            f"{where}: a tool message answers a call before it: set tool_call_id to the id of one "
            "of the assistant's tool_calls",
            param=f"{where}.tool_call_id",
        )
    return _whole(*result_block(text, name=call_to_tool[call], call=call))


def _text(message: Message, where: str) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for index, part in enumerate(message.content):
        name = _TEXT_PARTS.get(part.type)
        at = f"{where}.content[{index}]"
        if name is None:
            raise ContentError(
                f"{at} is of type {part.type!r:.40}: the model reads text alone; send parts of "
                "type text",
                param=f"{at}.type",
            )
        text = getattr(part, name)
        if text is None:
            raise ContentError(f"{at}: a part of type {part.type} has {name}", param=f"{at}.{name}")
        texts.append(text)
    return "".join(texts)
