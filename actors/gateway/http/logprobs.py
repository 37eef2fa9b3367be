"""Log probabilities in the two shapes that OpenAI has: for chats and for text completions.

A token may be part of a character. Its text then holds U+FFFD, and `bytes` (chat) or the name
`bytes:\\x..` (text) says what it really is, so the bytes of all tokens together spell the answer.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.messages.worker import TokenLogprob

_PPM: Final = 1_000_000


def chat_logprobs(tokens: list[TokenLogprob]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""
    return {
        "content": [
            {
                **_chat_token(token.piece, token.logprob_ppm),
                "top_logprobs": [_chat_token(top.piece, top.logprob_ppm) for top in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def text_logprobs(tokens: list[TokenLogprob], offset: int) -> dict[str, Any]:
    """`choices[].logprobs` of a text completion; `offset`: bytes of answer before these tokens."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.piece)
    return {
        "tokens": [_text_token(token.piece) for token in tokens],
        "token_logprobs": [token.logprob_ppm / _PPM for token in tokens],
        "top_logprobs": [
            {_text_token(top.piece): top.logprob_ppm / _PPM for top in token.top}
            for token in tokens
        ],
        "text_offset": offsets,
    }


def _chat_token(piece: bytes, logprob_ppm: int) -> dict[str, Any]:
    return {
        "token": piece.decode("utf-8", "replace"),
        "logprob": logprob_ppm / _PPM,
        "bytes": list(piece),
    }


def _text_token(piece: bytes) -> str:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
