"""Whose turn it is: prefill and decode share one engine.

The rule: after a chunk of k prefilled tokens, decode gets max(1, k // 32) rounds before the next
chunk, and a round gives every running answer one token. A full chunk of 256 costs about as much
as 40 tokens of decode, so with both waiting, prefill keeps some four fifths of the time and no
answer ever stalls for longer than one chunk. Bounds, whatever comes:

- between two rounds of decode lies at most one chunk;
- between two chunks lie at most chunk_tokens // 32 rounds;
- prompts that are being prefilled take turns chunk by chunk, so a short one waits for at most one
  chunk of each of the others, and none is overtaken twice by the same.

Nothing here looks at what a prompt found warm: only at what is fed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Literal

TOKENS_PER_ROUND: Final = 32


class Turns:
    """Chooses the engine's next unit of work. Tell it what was done."""

    def __init__(self) -> None:
        self._rounds_owed = 0

    def choose(self, *, prefill: bool, decode: bool) -> Literal["prefill", "decode"] | None:
        """Which of those that have something to do goes next; None if neither has."""
        if decode and (self._rounds_owed or not prefill):
            return "decode"
        return "prefill" if prefill else None

    def prefilled(self, tokens: int) -> None:
        """A chunk of `tokens` was fed."""
        self._rounds_owed = max(1, tokens // TOKENS_PER_ROUND)

    def decoded(self) -> None:
        """A round was done."""
        self._rounds_owed = max(0, self._rounds_owed - 1)


def groups(count: int, group_max: int) -> list[slice]:
    """`count` running answers in as few groups of at most `group_max` as there can be, sizes as
    even as they can be (three of four and one alone would cost more than two and two)."""
    if count == 0:
        return []
    parts = -(-count // group_max)
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
