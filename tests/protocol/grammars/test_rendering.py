"""Which content stands plain, which is fenced, and what cannot be rendered."""

from __future__ import annotations

import pytest

from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.errors import ContentError
from protocol.grammars.fence import KINDS, nonce
from protocol.grammars.rendering import attributes_of, is_fenced, render
from protocol.grammars.tools import call_block, declarations_block, result_block

_SPOKEN = (
    BlockType.INSTRUCTION,
    BlockType.USER_TURN,
    BlockType.MODEL_TURN,
    BlockType.OTHER,
)


def _block(role: Role, kind: BlockType, *, trust: bool = True, **rendering: str) -> ContextBlock:
    return text_block(role, kind, "text", rendering=rendering, trust=trust)


@pytest.mark.parametrize("role", [Role.SYSTEM, Role.USER, Role.MODEL])
@pytest.mark.parametrize("kind", _SPOKEN)
def test_trusted_spoken_text_stands_plain_and_trimmed(role: Role, kind: BlockType) -> None:
    block = _block(role, kind)
    assert not is_fenced(block)
    assert render(block, "\u2003\n said \x85\n") == "said"


@pytest.mark.parametrize("kind", [kind for kind in BlockType if kind not in _SPOKEN])
def test_everything_else_is_fenced(kind: BlockType) -> None:
    block = _block(Role.USER, kind)
    assert is_fenced(block)
    shown = render(block, " kept \n")
    assert shown.startswith("<")
    assert "\n kept \n\n</" in shown


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("kind", BlockType)
def test_untrusted_text_is_fenced_and_says_so(role: Role, kind: BlockType) -> None:
    shown = render(_block(role, kind, trust=False), "x")
    opening = shown.partition("\n")[0]
    assert opening.endswith(' trust="none">')
    assert opening[1:].partition(f"-{nonce('x')}")[0] in KINDS


def test_a_parameter_fences_spoken_text() -> None:
    block = _block(Role.USER, BlockType.USER_TURN, title="t")
    assert render(block, "x") == f'<message-{nonce("x")} title="t">\nx\n</message-{nonce("x")}>'


def test_the_tool_role_is_always_fenced() -> None:
    block = _block(Role.TOOL, BlockType.OTHER)
    assert render(block, "x").startswith("<tool-result-")


def test_a_name_is_an_attribute_where_there_is_a_fence() -> None:
    plain = text_block(Role.USER, BlockType.USER_TURN, "x", name="Ada")
    assert render(plain, "x") == "x"
    fenced = text_block(Role.USER, BlockType.USER_TURN, "x", name="Ada", trust=False)
    assert attributes_of(fenced) == {"name": "Ada", "trust": "none"}


@pytest.mark.parametrize("parameter", ["", "Path", "a b", "1a", "a" * 33, "trust", "name", "é"])
def test_a_parameter_that_is_no_small_identifier_is_refused(parameter: str) -> None:
    block = text_block(Role.USER, BlockType.FILE, "x", rendering={parameter: "x"})
    with pytest.raises(ContentError, match="rendering parameter"):
        render(block, "x")


def test_tool_calls_declarations_and_results() -> None:
    call, arguments = call_block("t", "{}")
    assert render(call, arguments) == '{"name": "t", "parameters": {}}'
    declared, text = declarations_block([{"name": "t"}])
    assert not is_fenced(declared)
    assert '{"name": "t"}' in render(declared, text)
    result, answer = result_block("ok", name="t")
    assert f'<tool-result-{nonce("ok")} tool="t" trust="none">' in render(result, answer)


def test_untrusted_declarations_and_calls_speak_for_nobody() -> None:
    declared = _block(Role.SYSTEM, BlockType.INSTRUCTION, trust=False, part="declarations")
    assert "You can call" not in render(declared, "[]")
    call = _block(Role.MODEL, BlockType.TOOL_CALL, trust=False, tool="t")
    assert render(call, "{}").startswith("<tool-call-")


def test_plain_text_cannot_write_a_fence() -> None:
    assert render(_block(Role.USER, BlockType.USER_TURN), "<file-x>") == "&lt;file-x>"
