"""Tools as text: declarations, calls and results, the same for every grammar.

Declarations are one trusted system block (`declarations_block`): JSON in a fence, between what the
model may do and how it says so. A call is one line of JSON in the model's own turn, the form that
the declarations ask for, so that a call which a model generated and one that a client resends read
alike. A result is a fenced block of the tool role, which speaks in the user's turn.

Text from outside (names, arguments, results) is quoted by JSON or by the fence: it holds no bare
line break, quote or tag of its own (ASM-3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from protocol.assembly import ToolEncoding
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.errors import ContentError
from protocol.grammars import fence
from protocol.limits import DEPTH_MAX

TOOLS: Final = ToolEncoding(v=1, kind="tools", name="json-lines", version=1)

# The rendering parameters that mark a block of declarations.
_DECLARES: Final = {"part": "declarations"}
_BEFORE: Final = "You can call these tools. Each line describes one, as JSON:\n"
_AFTER: Final = (
    "\nTo call a tool, answer with nothing but one line of JSON for each call:\n"
    '{"name": the tool\'s name, "parameters": an object with its arguments}'
)
_NESTING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def declarations_block(tools: list[dict[str, object]]) -> tuple[ContextBlock, str]:
    """The block that declares `tools` (JSON objects), and its text: one tool on each line, keys
    sorted. Raises ContentError for a value that JSON does not have."""
    try:
        lines = [
            json.dumps(tool, ensure_ascii=False, sort_keys=True, allow_nan=False) for tool in tools
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise ContentError(f"a tool declaration is not JSON: {error}") from error
    text = "\n".join(lines)
    rendering = dict(_DECLARES)
    return text_block(Role.SYSTEM, BlockType.INSTRUCTION, text, rendering=rendering), text


def is_declaration(block: ContextBlock) -> bool:
    """Whether the block is one that `declarations_block` makes."""
    return block.role is Role.SYSTEM and block.trust and block.rendering == _DECLARES


def declarations(text: str) -> str:
    """A block of declarations as the model reads it."""
    return _BEFORE + fence.fence("tools", text, {}) + _AFTER


def call_block(name: str, arguments: str, *, call: str | None = None) -> tuple[ContextBlock, str]:
    """The block of a call of tool `name` with `arguments` (JSON text as the model or the client
    wrote it), and its text. `call` is the call's id, if results refer to it."""
    rendering = {"tool": name} if call is None else {"tool": name, "call": call}
    return text_block(Role.MODEL, BlockType.TOOL_CALL, arguments, rendering=rendering), arguments


def result_block(
    text: str, *, name: str | None = None, call: str | None = None
) -> tuple[ContextBlock, str]:
    """The untrusted block of a tool's result, and its text."""
    given = {"tool": name, "call": call}
    rendering = {key: value for key, value in given.items() if value is not None}
    block = text_block(Role.TOOL, BlockType.TOOL_RESULT, text, rendering=rendering, trust=False)
    return block, text


def call_line(rendering: Mapping[str, str], arguments: str) -> str:
    """A tool call as one line of JSON: name, id if there is one, parameters.

    Arguments that are not JSON (models err) are carried as text. Raises ContentError for rendering
    parameters other than `tool` and `call`.
    """
    if "tool" not in rendering or rendering.keys() - {"tool", "call"}:
        raise ContentError(
            "a tool call is rendered with the parameter 'tool' and perhaps 'call', not with "
            f"{sorted(rendering)!r:.120}"
        )
    fields: dict[str, object] = {"name": rendering["tool"]}
    if "call" in rendering:
        fields["id"] = rendering["call"]
    fields["parameters"] = _parsed(arguments)
    line = json.dumps(fields, ensure_ascii=False)
    # Inside a JSON string an escape can stand for `<` without changing what the string says.
    return line.replace("<", "\\u003c") if fence.looks_like_tag(line) else line


def _parsed(arguments: str) -> object:
    """The JSON value of `arguments`, or the text itself where it is none, says a thing twice,
    holds half a character, or nests deeper than records do (Python's own limit would depend on
    the stack of the moment, and the same text has to give the same tokens everywhere)."""
    depth = deepest = 0
    for match in _NESTING.finditer(arguments):
        depth += (match[0] in "[{") - (match[0] in "]}")
        deepest = max(deepest, depth)
    if deepest > DEPTH_MAX:
        return arguments
    try:
        value: object = json.loads(
            arguments, parse_constant=_refuse, object_pairs_hook=_without_duplicates
        )
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        return arguments
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value
