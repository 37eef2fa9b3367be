"""Log probabilities: the bytes of all tokens spell the answer."""

from __future__ import annotations

from actors.gateway.http.logprobs import chat_logprobs, text_logprobs
from protocol.messages.worker import TokenLogprob, TopLogprob

BIRD = "a🐦".encode()


def tokens() -> list[TokenLogprob]:
    return [
        TokenLogprob(
            token=byte,
            piece=bytes((byte,)),
            logprob_ppm=-1_500_000,
            top=[TopLogprob(token=1, piece=b"x", logprob_ppm=-250_000)],
        )
        for byte in BIRD
    ]


def test_chat_bytes_rebuild_the_text() -> None:
    content = chat_logprobs(tokens())["content"]
    assert bytes(byte for token in content for byte in token["bytes"]) == BIRD
    assert content[0] == {
        "token": "a",
        "logprob": -1.5,
        "bytes": [97],
        "top_logprobs": [{"token": "x", "logprob": -0.25, "bytes": [120]}],
    }
    assert content[1]["token"] == "\ufffd"


def test_text_names_the_bytes_of_part_of_a_character() -> None:
    made = text_logprobs(tokens(), 10)
    assert made["tokens"] == ["a", *(f"bytes:\\x{byte:02x}" for byte in BIRD[1:])]
    assert made["text_offset"] == [10, 11, 12, 13, 14]
    assert made["token_logprobs"] == [-1.5] * 5
    assert made["top_logprobs"] == [{"x": -0.25}] * 5
