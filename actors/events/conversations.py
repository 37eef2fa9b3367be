"""Conversations as the ropes room keeps them, remembered here while they are talked on.

A turn's conversation is some first blocks of a kept one and what is new. Answers are kept
incrementally on the root of the turn before. What is remembered by turn is memory alone: forgetting
it costs reading the sequence again. Memory asks nobody for a right, as the ropes room does: who is
told out of it has been found to read the session's namespace (`scope.may_read`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from actors.events.alignment import block_id
from actors.events.turns import Kept, Turn
from actors.room import Call
from protocol.messages import ropes
from protocol.messages.ropes import NewBlock

_REMEMBERED_BYTES: Final = 64 * 2**20
# What a block takes beside its content, roughly.
_BLOCK_BYTES: Final = 500

# `Room.ask_for`: another room, on a caller's behalf.
AskFor = Callable[..., Awaitable[Any]]


class Conversations:
    """Asks the ropes room through `ask_for`; remembers about `bytes_max` bytes."""

    def __init__(self, ask_for: AskFor, *, bytes_max: int = _REMEMBERED_BYTES) -> None:
        self._ask_for = ask_for
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_turn: OrderedDict[tuple[str, int], list[NewBlock]] = OrderedDict()

    async def of(self, call: Call, session: str, turn: Turn) -> list[NewBlock]:
        """The blocks that `turn` asked about and, if it is finished, its answer.

        Raises NotVisible if the sequence is not in the caller's view any more.
        """
        known = self.recall(session, turn.number)
        if known is not None:
            return known
        if turn.kept is not None:
            blocks = await self._read(call, turn.kept, turn.kept.blocks)
        elif turn.base is None:
            blocks = list(turn.tail)
        else:
            blocks = [*await self._read(call, turn.base, turn.keep), *turn.tail]
        self.remember(session, turn.number, blocks)
        return blocks

    async def keep(
        self,
        call: Call,
        namespace: str,
        tail: Sequence[NewBlock],
        *,
        base: Kept | None,
        keep: int,
    ) -> Kept:
        """Keep the first `keep` blocks of `base` and then `tail`; durable when answered."""
        ids = [block_id(block) for block in tail]
        committed: ropes.Committed = await self._ask_for(
            call,
            "ropes",
            "commit",
            ropes.Commit(
                namespace=namespace,
                keep=keep if base else 0,
                base=base.root if base else None,
                blocks=list(dict(zip(ids, tail, strict=True)).values()),
                entries=[
                    ropes.Entry(block=id, content_bytes=len(block.content))
                    for id, block in zip(ids, tail, strict=True)
                ],
            ),
            ropes.Committed,
        )
        return Kept(root=committed.root, sequence=committed.sequence, blocks=committed.blocks)

    async def _read(self, call: Call, kept: Kept, stop: int) -> list[NewBlock]:
        if stop == 0:
            return []
        read: ropes.SequenceBlocks = await self._ask_for(
            call,
            "ropes",
            "read",
            ropes.ReadSequence(sequence=kept.sequence, start=0, stop=stop),
            ropes.SequenceBlocks,
        )
        return read.blocks

    # -- memory ------------------------------------------------------------------------------

    def recall(self, session: str, number: int) -> list[NewBlock] | None:
        found = self._by_turn.get((session, number))
        if found is not None:
            self._by_turn.move_to_end((session, number))
        return found

    def remember(self, session: str, number: int, blocks: list[NewBlock]) -> None:
        self.forget(session, number)
        self._by_turn[session, number] = blocks
        self._bytes += _size(blocks)
        while self._bytes > self._bytes_max and len(self._by_turn) > 1:
            self._bytes -= _size(self._by_turn.popitem(last=False)[1])

    def forget(self, session: str, number: int) -> None:
        known = self._by_turn.pop((session, number), None)
        if known is not None:
            self._bytes -= _size(known)


def _size(blocks: Sequence[NewBlock]) -> int:
    return sum(len(block.content) + _BLOCK_BYTES for block in blocks)
