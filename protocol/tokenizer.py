"""Tokenizing content so that it can only ever be content.

A tokenizer contract names a vocabulary by digest, its control tokens by number, and the deny set:
every control and structural id. Content is tokenized block by block with the deny set unreachable,
whatever the text says; control ids come from grammar only (I-NO-FORGERY, ASM-3).
"""

from __future__ import annotations

from typing import Literal, Protocol

from protocol.errors import ContentError
from protocol.ids import ContractId
from protocol.record import Identified
from protocol.tokens import TokenIds


class TokenizerContract(Identified):
    """What fixes text ↔ ids. `vocabulary_digest` is the SHA-256 over every (piece, type, score)
    in id order; `control` the ids that grammars emit, by name (`bos`, `start_of_turn`,
    `end_of_turn`, `eos`); `deny_digest` the SHA-256 of the sorted packed deny set; `discipline`
    the named rule by which content is cut and tokenized."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["tokenizer"]
    vocabulary_digest: bytes
    vocabulary_tokens: int
    control: dict[str, int]
    deny_digest: bytes
    discipline: str


class Tokenizer(Protocol):
    """A port: text to ids and back under one contract. Pure: same text, same ids, for ever.

    `encode(text)` gives the ids of `text` as content: none of them is in `deny`, and `decode` of
    them gives back the UTF-8 bytes of `text` (with U+2581 read as a space where the vocabulary
    cannot tell the two apart). `piece(id)` gives one id's bytes: b"" for control ids, and a part
    of a character for byte ids. `decode` joins pieces. ContentError for an id outside the
    vocabulary. The implementation never blocks on a model that is computing.
    """

    contract: TokenizerContract
    deny: frozenset[int]

    def encode(self, text: str) -> TokenIds: ...

    def piece(self, token: int) -> bytes: ...

    def decode(self, ids: TokenIds) -> bytes: ...


def check_outside_ids(ids: TokenIds, tokenizer: Tokenizer) -> TokenIds:
    """`ids` that came from outside (token-array prompts, `logit_bias`), if content may hold them.

    Raises ContentError that names the first id outside the vocabulary or in the deny set.
    """
    for index, token in enumerate(ids):
        if not 0 <= token < tokenizer.contract.vocabulary_tokens:
            raise ContentError(
                f"token {token} at index {index} is outside the vocabulary of "
                f"{tokenizer.contract.vocabulary_tokens} tokens",
                index=index,
                token=token,
            )
        if token in tokenizer.deny:
            raise ContentError(
                f"token {token} at index {index} is a control or structural token: only the "
                "grammar may emit it. Send text instead",
                index=index,
                token=token,
            )
    return ids
