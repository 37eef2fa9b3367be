"""What a block's content reads as, before any token: the same for every grammar.

Trusted, spoken text without parameters stands plain and trimmed. A trusted tool call of the model
is a line of JSON, declarations have their frame (see `tools`), and everything else is fenced.
"""

from __future__ import annotations

import re
from typing import Final

from protocol.blocks import BlockType, ContextBlock, Role
from protocol.errors import ContentError
from protocol.grammars import fence, tools

_TYPE_TO_KIND: Final[dict[BlockType, str]] = {
    BlockType.INSTRUCTION: "instruction",
    BlockType.USER_TURN: "message",
    BlockType.MODEL_TURN: "message",
    BlockType.TOOL_CALL: "tool-call",
    BlockType.TOOL_RESULT: "tool-result",
    BlockType.FILE: "file",
    BlockType.SYMBOL: "symbol",
    BlockType.DIAGNOSTIC: "diagnostic",
    BlockType.PLAN: "plan",
    BlockType.DIFF: "diff",
    BlockType.SUMMARY: "summary",
    BlockType.EVENT_REMINDER: "system-reminder",
    BlockType.RECEIPT: "receipt",
    BlockType.MEMORY: "memory",
    BlockType.OTHER: "context",
}
# What people and models say themselves.
_SPOKEN: Final = frozenset(
    (BlockType.INSTRUCTION, BlockType.USER_TURN, BlockType.MODEL_TURN, BlockType.OTHER)
)
_PARAMETER: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")


def render(block: ContextBlock, text: str) -> str:
    """`text` as the block shows it. Look-alikes of fences are escaped wherever they stand.

    Plain text is trimmed as `str.strip` does, which is what a template's `trim` is; fenced text is
    kept as it is. Raises ContentError for a block that has no rendering: see `attributes_of` and
    `tools.call_line`.
    """
    if tools.is_declaration(block):
        return tools.declarations(text)
    if is_fenced(block):
        return fence.fence(_kind(block), text, attributes_of(block))
    if block.type is BlockType.TOOL_CALL:
        return tools.call_line(block.rendering, text)
    return fence.escape(text.strip())


def is_fenced(block: ContextBlock) -> bool:
    """Whether the block's content stands in a fence of its own kind."""
    if not block.trust or block.role is Role.TOOL:
        return True
    if block.role is Role.MODEL and block.type is BlockType.TOOL_CALL:
        return False
    return not tools.is_declaration(block) and (block.type not in _SPOKEN or bool(block.rendering))


def attributes_of(block: ContextBlock) -> dict[str, str]:
    """A fenced block's rendering parameters, its name, and `trust="none"` for an untrusted one.

    Raises ContentError for a parameter whose name is not a small ASCII identifier, or is taken.
    """
    attributes = dict(block.rendering)
    for parameter in attributes:
        if parameter in ("name", "trust") or not _PARAMETER.fullmatch(parameter):
            raise ContentError(
                f"rendering parameter {parameter!r:.60} cannot be rendered: names are 1 to 32 of "
                "a-z, 0-9 and _, begin with a letter, and are not 'name' or 'trust'"
            )
    if block.name is not None:
        attributes["name"] = block.name
    if not block.trust:
        attributes["trust"] = "none"
    return attributes


def _kind(block: ContextBlock) -> str:
    if block.role is Role.TOOL and block.type in _SPOKEN:
        return _TYPE_TO_KIND[BlockType.TOOL_RESULT]
    return _TYPE_TO_KIND[block.type]
