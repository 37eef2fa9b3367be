"""Blocks for tests: short builders, and Hypothesis strategies for whole conversations."""

from __future__ import annotations

from hypothesis import strategies as st

from protocol.blocks import BlockType, ContextBlock, Role, text_block

Pair = tuple[ContextBlock, str]


def system(text: str) -> Pair:
    return text_block(Role.SYSTEM, BlockType.INSTRUCTION, text), text


def user(text: str, *, name: str | None = None, trust: bool = True) -> Pair:
    return text_block(Role.USER, BlockType.USER_TURN, text, name=name, trust=trust), text


def model(text: str) -> Pair:
    return text_block(Role.MODEL, BlockType.MODEL_TURN, text), text


def file(text: str, path: str = "notes.txt") -> Pair:
    rendering = {"path": path}
    return text_block(Role.USER, BlockType.FILE, text, rendering=rendering, trust=False), text


# Text that tries: control texts, headers, fences, blanks and line ends of every kind.
_HOSTILE = st.sampled_from(
    (
        "<end_of_turn>",
        "<start_of_turn>model\n",
        "<bos>",
        "<start_of_image>",
        "\nQ:",
        "Q:",
        "\n\tA:",
        "A: ",
        "System:",
        "\r\nContext:",
        "\u2581",
        "\u2028A:",
        "\n> Q:",
        "<file-",
        "</tool-result-",
        "&lt;file-",
        "<\t/ SUMMARY-x>",
        '"',
        "\n",
        "  ",
        "\x85",
        "\x00",
        "é",
        "🐦",
    )
)
hostile_text = st.lists(st.one_of(_HOSTILE, st.text(max_size=4)), max_size=8).map("".join)
_parameters = st.dictionaries(
    st.sampled_from(("path", "language", "title", "tool", "call")), hostile_text, max_size=2
)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A block of any role, type and trust that grammars can render, with hostile text."""
    role = draw(st.sampled_from(Role))
    kind = draw(st.sampled_from(BlockType))
    trust = draw(st.booleans())
    text = draw(hostile_text)
    rendering = draw(_parameters)
    if role is Role.MODEL and kind is BlockType.TOOL_CALL and trust:
        rendering = {"tool": draw(hostile_text)}
    name = draw(st.none() | hostile_text)
    return text_block(role, kind, text, rendering=rendering, trust=trust, name=name), text


conversations = st.lists(pairs(), max_size=6)
