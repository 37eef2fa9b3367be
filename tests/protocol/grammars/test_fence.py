"""Fences cannot be closed, forged or broken out of, and escaping loses nothing."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError
from protocol.grammars.fence import (
    KINDS,
    NONCE_CHARS,
    attribute,
    escape,
    fence,
    looks_like_tag,
    nonce,
)
from protocol.ids import TextId
from tests.block_samples import hostile_text

_PIECES = st.sampled_from(
    ("<", "/", " ", "\t", "\u2581", "file", "FILE", "system-reminder", "-", "&", "amp;", "lt;", "x")
)
_tag_soup = st.lists(_PIECES, max_size=14).map("".join)
_texts = st.one_of(_tag_soup, hostile_text, st.text())


def test_a_fence_has_a_nonce_of_its_own_content_and_sorted_attributes() -> None:
    text = "line\n"
    shown = fence("file", text, {"path": "a.txt", "language": "text"})
    tag = f"file-{str(TextId.of(b'line' + bytes((10,))))[5 : 5 + NONCE_CHARS]}"
    assert shown == f'<{tag} language="text" path="a.txt">\nline\n\n</{tag}>'
    assert shown == fence("file", text, {"language": "text", "path": "a.txt"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["<{}-", "</{}-", "< {}-", "<\t/ {}-", "<\u2581{}-"])
def test_a_look_alike_is_escaped_in_every_shape_and_case(kind: str, shape: str) -> None:
    for spelled in (kind, kind.upper(), kind.title()):
        text = f"a {shape.format(spelled)}x> b"
        assert looks_like_tag(text)
        assert escape(text) == text.replace("<", "&lt;")


@pytest.mark.parametrize(
    "text",
    ["<file>", "<files-x>", "a < file", "<summary>", "&lt; file", "<\nfile-x>", "x-y <b>", "&lt;b"],
)
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert escape(text) == text


@given(_texts)
def test_no_look_alike_is_left(text: str) -> None:
    assert not looks_like_tag(escape(text))


@given(_texts)
def test_escaping_can_be_undone(text: str) -> None:
    """So two contents never render alike."""
    tags = rf"[ \t\u2581]*/?[ \t\u2581]*(?:{'|'.join(KINDS)})-"
    undone = re.sub(rf"(?i)&lt;(?={tags})", "<", escape(text))
    undone = re.sub(rf"(?i)&amp;(?=(?:amp;)*lt;{tags})", "&", undone)
    assert undone == text


@given(st.text())
def test_an_attribute_stays_between_its_quotes(value: str) -> None:
    written = attribute(value)
    assert not set('"<>') & set(written)
    assert len(f"a{written}b".splitlines()) == 1
    assert all(character.isprintable() or ord(character) > 0x9F for character in written)


def test_attributes_that_differ_are_written_differently() -> None:
    values = ('"', "&quot;", "&amp;quot;", "\n", "&#10;", " ", "\u2581", "<", "&lt;")
    assert len({attribute(value) for value in values}) == len(values)


@given(_texts, st.dictionaries(st.sampled_from(("path", "title")), _texts))
def test_a_fence_opens_and_closes_once(text: str, attributes: dict[str, str]) -> None:
    shown = fence("file", text, attributes)
    assert re.findall(r"</?file-[a-z2-7]+", shown) == [
        f"<file-{nonce(text)}",
        f"</file-{nonce(text)}",
    ]
    assert shown.count("\n") == text.count("\n") + 2


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ContentError, match="character 1 is a lone surrogate"):
        fence("file", "a\ud800", {})


@pytest.mark.parametrize("hostile", ["<" + " " * 200_000, "&" + "amp;" * 50_000, "<\t" * 100_000])
def test_hostile_text_costs_linear_time(hostile: str) -> None:
    started = time.perf_counter()
    escape(hostile)
    assert time.perf_counter() - started < 2
