"""Delivered text against a naive reading of the whole answer, over random splits of its bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.worker.stops import STOP_CHARS_MAX, STOPS_MAX, AnswerText, check_stops
from protocol.errors import ContentError, LimitExceeded

# Few letters, so that stops overlap; spaces; characters of two, three and four bytes.
alphabet = st.sampled_from(["a", "b", "c", " ", "\n", "é", "€", "🐦", "\u00a0"])
stop_lists = st.lists(st.text(alphabet, min_size=1, max_size=4), max_size=4)
valid = st.text(alphabet, max_size=24).map(lambda text: text.encode())
broken = st.lists(
    st.sampled_from([b"a", b" ", b"\xe2", b"\x82", b"\xac", b"\xf0\x9f", b"\xff", b"\xc3", b"b"]),
    max_size=16,
).map(b"".join)


def naive(data: bytes, stops: list[str], trim: bool) -> tuple[str, bool]:
    """The rules, for a whole answer: the stop that is complete first, the longest at that place."""
    text = data.decode("utf-8", "replace")
    stopped = False
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            text = text[: end - max(map(len, found))]
            stopped = True
            break
    return (text.strip() if trim else text), stopped


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


@given(
    data=st.one_of(valid, broken),
    stops=stop_lists,
    cuts=st.lists(st.integers(0, 99), max_size=12),
    trim=st.booleans(),
)
@example(data=b"abcd", stops=["abcd", "bc"], cuts=[], trim=False)
@example(data=b"abcd", stops=["abcd", "bc"], cuts=[1, 2, 3], trim=False)
@example(data=b"cab", stops=["b", "ab"], cuts=[], trim=False)
@example(data=b"cab", stops=["ab", "b"], cuts=[1, 2], trim=False)
@example(data="é".encode(), stops=[], cuts=[1], trim=False)
@example(data=b"a\xe2", stops=["\ufffd"], cuts=[1], trim=False)
def test_deltas_joined_are_the_whole_text(
    data: bytes, stops: list[str], cuts: list[int], trim: bool
) -> None:
    answer = AnswerText(stops, trim=trim)
    wanted, stopped = naive(data, stops, trim)
    out = ""
    for piece in split(data, cuts):
        out += answer.feed(piece)
        assert wanted.startswith(out), "text was given out that is not the answer's"
        if answer.stopped:
            break
    out += answer.finish()
    assert out == wanted
    assert answer.stopped == stopped


@given(text=st.text(alphabet, max_size=16), stops=stop_lists)
def test_tokens_out_are_those_that_lie_wholly_in_the_text(text: str, stops: list[str]) -> None:
    answer = AnswerText(stops, trim=False)
    out, fed = "", []
    for byte in text.encode():
        fed.append(byte)
        out += answer.feed(bytes((byte,)))
        assert answer.tokens_out <= len(fed)
        # A token never goes out before the whole of its text.
        assert len(out.encode()) >= answer.tokens_out
        if answer.stopped:
            break
    out += answer.finish()
    assert bytes(fed[: answer.tokens_out]) == out.encode()


def test_text_is_not_held_back_longer_than_it_must_be() -> None:
    answer = AnswerText(["\nQ:"], trim=False)
    assert answer.feed(b"Paris.") == "Paris."
    assert answer.feed(b"\n") == ""
    assert answer.feed(b"R") == "\nR"
    assert answer.feed(b"\nQ") == ""
    assert answer.tokens_out == 3
    assert answer.feed(b": more") == ""
    assert answer.stopped
    assert answer.tokens_out == 3


def test_stops_have_limits() -> None:
    assert check_stops(["a", "b", "a"]) == ("a", "b")
    with pytest.raises(ContentError, match="empty stop text"):
        check_stops(["a", ""])
    with pytest.raises(LimitExceeded, match=f"{STOPS_MAX + 1} stop texts"):
        check_stops([str(n) for n in range(STOPS_MAX + 1)])
    with pytest.raises(LimitExceeded, match="characters"):
        check_stops(["x" * (STOP_CHARS_MAX + 1)])
