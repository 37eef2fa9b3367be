"""A tokenizer that fits in a head, and is stricter than a real one.

Ids 0 … 255 are the bytes of UTF-8, so every text has one tokenization and no two neighbours ever
merge. Control and structural ids stand above; no text reaches them. U+2581 reads as a space, as
real vocabularies have it, so that a grammar that looks at text where it should look at tokens fails
here too.
"""

from __future__ import annotations

import hashlib

from protocol.errors import ContentError
from protocol.tokenizer import TokenizerContract
from protocol.tokens import TokenIds, pack

CONTROL = {"bos": 256, "eos": 257, "start_of_turn": 258, "end_of_turn": 259}
IMAGE = 260
VOCABULARY_TOKENS = 261
CONTROL_TEXTS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>")
DENY = frozenset((*CONTROL.values(), IMAGE))


class FakeTokenizer:
    """Implements protocol.tokenizer.Tokenizer over bytes. `control` may leave out some names."""

    def __init__(self, control: dict[str, int] | None = None, discipline: str = "bytes/1") -> None:
        self.deny = DENY
        self.contract = TokenizerContract(
            v=1,
            kind="tokenizer",
            vocabulary_digest=hashlib.sha256(b"bytes and five controls").digest(),
            vocabulary_tokens=VOCABULARY_TOKENS,
            control=dict(CONTROL if control is None else control),
            deny_digest=hashlib.sha256(pack(sorted(DENY))).digest(),
            discipline=discipline,
        )

    def encode(self, text: str) -> TokenIds:
        if type(text) is not str:
            raise TypeError(f"content is text, not {type(text).__name__}")
        try:
            return tuple(text.replace("\u2581", " ").encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ContentError("content is Unicode text", index=error.start) from error

    def piece(self, token: int) -> bytes:
        if not 0 <= token < VOCABULARY_TOKENS:
            raise ContentError(f"token {token} is outside the vocabulary", token=token)
        return bytes((token,)) if token < 256 else b""

    def decode(self, ids: TokenIds) -> bytes:
        return b"".join(map(self.piece, ids))


def shown(ids: TokenIds) -> str:
    """`ids` for an assertion's eye: control ids by name."""
    names = dict(zip((*CONTROL.values(), IMAGE), CONTROL_TEXTS, strict=True))
    parts: list[bytes] = [
        names[token].encode() if token in names else bytes((token,)) for token in ids
    ]
    return b"".join(parts).decode("utf-8", "replace")
