"""Handles as text: one spelling each, and nothing else is one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import CapabilityError
from protocol.handle_text import HANDLE_CHARS_MAX, HANDLE_PREFIX, decode_handle, encode_handle
from tests.chains import turn_chain


@given(st.lists(st.binary(max_size=64), max_size=9).map(tuple))
def test_there_and_back(chain: tuple[bytes, ...]) -> None:
    text = encode_handle(chain)
    assert decode_handle(text) == chain
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def test_the_longest_chain_fits() -> None:
    chain = (bytes(4096),) * 8
    assert len(encode_handle(chain)) <= HANDLE_CHARS_MAX
    assert decode_handle(encode_handle(chain)) == chain


def refused(text: str) -> bool:
    try:
        decode_handle(text)
    except CapabilityError as error:
        return error.step == "decode"
    return False


@pytest.mark.req("AUT-1")
def test_nothing_else_is_one() -> None:
    text = encode_handle(turn_chain("ropes"))
    assert not refused(text)
    for wrong in (
        "",
        text[1:],
        text.removeprefix(HANDLE_PREFIX),
        text + "=",
        text + "A",
        text[:-1],
        text + " ",
        text.replace("hgh-", "hgh-hgh-"),
        "hgh-é",
        HANDLE_PREFIX + "A" * HANDLE_CHARS_MAX,
    ):
        assert refused(wrong), wrong
    for value in ({}, 7, [1], ["x"], b"x"):
        packed = base64.urlsafe_b64encode(cbor.encode(value)).decode().rstrip("=")
        assert refused(HANDLE_PREFIX + packed)


@given(st.text(max_size=40))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    for given_text in (text, HANDLE_PREFIX + text):
        try:
            chain = decode_handle(given_text)
        except CapabilityError:
            continue
        assert encode_handle(chain) == given_text
