"""Events on the wire: one line each, whatever text they hold."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.http.sse import event


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_event_is_one_line_to_every_splitter(text: str) -> None:
    """F7: some clients cut lines at U+0085 and U+2028 too."""
    encoded = event({"text": text})
    assert encoded.startswith(b"data: ")
    assert encoded.endswith(b"\n\n")
    line = encoded[6:-2]
    assert len(line.decode().splitlines()) == 1
    assert msgspec.json.decode(line) == {"text": text}


def test_line_ends_of_unicode_are_escaped() -> None:
    assert event("\u0085\u2028\u2029") == b'data: "\\u0085\\u2028\\u2029"\n\n'


def test_an_event_may_have_a_name() -> None:
    assert event({}, "response.created") == b"event: response.created\ndata: {}\n\n"


def test_an_event_of_a_log_says_where_to_resume() -> None:
    assert event({}, "gap", "17") == b"id: 17\nevent: gap\ndata: {}\n\n"
