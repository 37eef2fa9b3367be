"""Blocks: the typed, identified pieces that a context is made of.

A block says who speaks (role), what it is (type), which object was rendered (source), what of it
must be kept (representation), the parameters that change its rendering, and whether its content
may speak as an instruction (trust). The content itself is an object of its own, so that one file
shown in two ways is two blocks and one content. Source: requirement ASM-9, identity design.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from protocol.errors import ContentError, RecordError
from protocol.ids import DIGEST_BYTES, BlockId, ContractId, TextId
from protocol.record import Identified, Record
from protocol.tokens import TOKEN_BYTES


class Role(str, Enum):
    """Who speaks in a block. Closed: a grammar has a header for each."""

    SYSTEM = "system"
    USER = "user"
    MODEL = "model"
    TOOL = "tool"


class BlockType(str, Enum):
    """What a block is. Closed; `other` is for what has no name here."""

    INSTRUCTION = "instruction"
    USER_TURN = "user turn"
    MODEL_TURN = "model turn"
    TOOL_CALL = "tool call"
    TOOL_RESULT = "tool result"
    FILE = "file"
    SYMBOL = "symbol"
    DIAGNOSTIC = "diagnostic"
    PLAN = "plan"
    DIFF = "diff"
    SUMMARY = "summary"
    EVENT_REMINDER = "event reminder"
    RECEIPT = "receipt"
    MEMORY = "memory"
    OTHER = "other"


class Source(Record):
    """What was rendered. A SemanticId always stands with the exact object that it was minted for.

    `semantic` is the 32-byte id that `contract`'s pinned canonicalizer minted: it means nothing
    without the contract, so the two stand together or not at all. Raises RecordError otherwise.
    """

    object: TextId
    semantic: bytes | None = None
    contract: ContractId | None = None

    def __post_init__(self) -> None:
        if (self.semantic is None) != (self.contract is None):
            raise RecordError("a source has a semantic id and its contract, or neither")
        if self.semantic is not None and len(self.semantic) != DIGEST_BYTES:
            raise RecordError(
                f"a semantic id is {DIGEST_BYTES} bytes, this one has {len(self.semantic)}"
            )


# What each kind of representation carries; it carries that and nothing else.
_KIND_TO_FIELDS: Final = {
    "exact-text": set[str](),
    "exact-tokens": {"tokens", "tokenizer"},
    "summary-of": {"of"},
    "reference": {"of"},
}


class Representation(Record):
    """What must be kept of the source.

    `exact-text`: the text. `exact-tokens`: the ids as generated (`tokens`, packed) under
    `tokenizer`, with the source's text beside them. `summary-of` and `reference`: `of`.
    Raises RecordError when the fields are not exactly those of its kind.
    """

    kind: Literal["exact-text", "exact-tokens", "summary-of", "reference"]
    tokens: bytes | None = None
    tokenizer: ContractId | None = None
    of: BlockId | None = None

    def __post_init__(self) -> None:
        names = ("tokens", "tokenizer", "of")
        given = {name for name in names if getattr(self, name) is not None}
        wanted = _KIND_TO_FIELDS.get(self.kind)
        if given != wanted:
            raise RecordError(f"{self.kind!r} carries {sorted(wanted or ())}, not {sorted(given)}")
        if self.tokens is not None and len(self.tokens) % TOKEN_BYTES:
            raise RecordError(f"{len(self.tokens)} bytes of tokens: {TOKEN_BYTES} to each id")


class ContextBlock(Identified):
    """One block. `rendering` holds only parameters that change what is rendered (path, title,
    language, tool name and call id), empty by default. `trust`: may it speak as an instruction."""

    ID = BlockId

    v: Literal[1]
    role: Role
    type: BlockType
    source: Source
    representation: Representation
    rendering: dict[str, str]
    trust: bool
    name: str | None = None


EXACT_TEXT = Representation(kind="exact-text")


def text_block(
    role: Role,
    kind: BlockType,
    text: str,
    *,
    rendering: dict[str, str] | None = None,
    trust: bool = True,
    name: str | None = None,
) -> ContextBlock:
    """The exact-text block that renders `text`; its source is the id of the text's UTF-8 bytes.

    Raises ContentError for text that is not Unicode (a lone surrogate). `rendering` is copied.
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ContentError(f"text that is not Unicode: {error}") from error
    return ContextBlock(
        v=1,
        role=role,
        type=kind,
        source=Source(object=TextId.of(content)),
        representation=EXACT_TEXT,
        rendering=dict(rendering or {}),
        trust=trust,
        name=name,
    )
