"""Blocks as they came into an assembly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.assembly import sequence_of
from protocol.blocks import ContextBlock
from protocol.errors import ContentError
from protocol.ids import BlockId, ContextId, SequenceId
from protocol.messages import ropes
from protocol.record import encode_record
from protocol.rope.build import build
from protocol.rope.node import Entry


def text_of(content: bytes) -> str:
    """`content` as text; ContentError if it is none."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContentError(f"content is not UTF-8 at byte {error.start}") from error


@dataclass(frozen=True)
class Given:
    """Blocks as they came: with their texts, and their ids computed here."""

    blocks: list[ropes.NewBlock]
    ids: list[BlockId]
    texts: list[str]

    def load(self, index: int) -> tuple[ContextBlock, str]:
        return self.blocks[index].block, self.texts[index]

    def only(self, kept: Sequence[int]) -> Given:
        return Given(
            [self.blocks[index] for index in kept],
            [self.ids[index] for index in kept],
            [self.texts[index] for index in kept],
        )

    def unstored(self, fields: ropes.AssemblyFields) -> tuple[SequenceId, ContextId]:
        """The ids that storing these under `fields` would mint. They name nothing that could be
        read."""
        entries = [
            Entry(block, len(new.content)) for block, new in zip(self.ids, self.blocks, strict=True)
        ]
        sequence = SequenceId.of(encode_record(sequence_of(build(entries).root)))
        return sequence, ContextId.of(encode_record(fields.over(sequence)))
