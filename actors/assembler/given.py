"""Blocks as they came into an assembly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.blocks import ContextBlock
from protocol.ids import BlockId
from protocol.messages import ropes


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
