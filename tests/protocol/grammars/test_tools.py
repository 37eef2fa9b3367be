"""Declarations, calls and results: defined, deterministic, and quoted whatever they say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.blocks import BlockType, Role
from protocol.errors import ContentError
from protocol.grammars.tools import (
    call_block,
    call_line,
    declarations,
    declarations_block,
    is_declaration,
    result_block,
)
from protocol.limits import DEPTH_MAX
from tests.block_samples import hostile_text

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | hostile_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile_text, inner, max_size=3),
    max_leaves=8,
)


def test_declarations_are_one_sorted_line_each() -> None:
    block, text = declarations_block([{"name": "b", "args": 1}, {"name": "a"}])
    assert text == '{"args": 1, "name": "b"}\n{"name": "a"}'
    assert is_declaration(block)
    shown = declarations(text)
    assert shown.startswith("You can call these tools.")
    assert f">\n{text}\n</tools-" in shown
    assert shown.endswith("arguments}")


@pytest.mark.parametrize("tool", [{"x": float("nan")}, {"x": b"bytes"}])
def test_a_declaration_that_is_not_json_is_refused(tool: dict[str, object]) -> None:
    with pytest.raises(ContentError, match="not JSON"):
        declarations_block([tool])


def test_a_call_reads_as_the_declarations_ask_for_it() -> None:
    block, text = call_block("weather", ' {"city":\n "Oslo"} ', call="c1")
    assert (block.role, block.type) == (Role.MODEL, BlockType.TOOL_CALL)
    assert call_line(block.rendering, text) == (
        '{"name": "weather", "id": "c1", "parameters": {"city": "Oslo"}}'
    )


@given(hostile_text, _json)
def test_a_call_is_one_line_that_says_what_was_called(name: str, arguments: object) -> None:
    line = call_line({"tool": name}, json.dumps(arguments))
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line) == {"name": name, "parameters": arguments}
    assert "<file-" not in line


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "NaN",
        '{"a": Infinity}',
        "1e999",
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
        "[" * 100_000,
        "1" * 10_000,
    ],
)
def test_arguments_that_are_not_safely_json_are_carried_as_text(arguments: str) -> None:
    assert json.loads(call_line({"tool": "t"}, arguments))["parameters"] == arguments


def test_the_deepest_nesting_is_parsed_and_brackets_in_text_do_not_nest() -> None:
    deepest = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    assert json.loads(call_line({"tool": "t"}, deepest))["parameters"] == json.loads(deepest)
    quoted = json.dumps(["[" * 1000 + '"'])
    assert json.loads(call_line({"tool": "t"}, quoted))["parameters"] == ["[" * 1000 + '"']


@pytest.mark.parametrize("rendering", [{}, {"call": "c"}, {"tool": "t", "path": "p"}])
def test_a_call_without_its_tool_or_with_more_is_refused(rendering: dict[str, str]) -> None:
    with pytest.raises(ContentError, match="'tool' and perhaps 'call'"):
        call_line(rendering, "{}")


def test_a_result_is_untrusted_and_names_its_call() -> None:
    block, text = result_block("21", name="weather", call="c1")
    assert (block.role, block.type, block.trust) == (Role.TOOL, BlockType.TOOL_RESULT, False)
    assert block.rendering == {"tool": "weather", "call": "c1"}
    assert result_block("21")[0].rendering == {}
    assert text == "21"
