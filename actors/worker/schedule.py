"""The advance schedule: in which pieces a token stream is fed, a function of the stream alone.

The bits of a prefix state depend on where its prefill was cut (measured: |Δlogit| ≈ 1 between two
cuts of the same tokens). So there is one way to cut, and every run of a sequence uses it, cold,
warm or restored (I-SAME-INPUT). An *advance* is one block, its head and its content, cut inside
every `chunk_tokens` from its start, with two exceptions that make turns add up:

- the generation opener joins the advance of the block before it;
- the head of a model block joins the advance of the block before it as well, because a grammar
  opens a model turn in a history exactly as it opens one to be generated. The first block of all
  keeps its head.

So the advances of `history + opener` are a prefix of those of `history + answer + whatever`, and
the cold run of a history issues exactly the advances that its turns issued. The price is a cold
prefill of many short pieces; a warm turn, the common one, feeds its new blocks and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from protocol.blocks import Role
from protocol.messages.assembler import Segment
from protocol.tokens import TOKEN_BYTES, TokenIds, unpack

# The largest advance, in tokens. 64 … 512 prefill equally fast here; one chunk is also how long
# a running decode waits for a prompt, and how long a cancelled prompt goes on.
CHUNK_TOKENS: Final = 256


class Advance(NamedTuple):
    """One piece of prefill. `block` is the index of the segment whose advance it is (-1 for an
    opener without any segment); `start` how many tokens of the stream stand before it."""

    ids: TokenIds
    block: int
    start: int

    @property
    def stop(self) -> int:
        """How many tokens the stream has when this advance is fed."""
        return self.start + len(self.ids)


def advances(
    segments: Sequence[Segment], opener: bytes, *, chunk_tokens: int = CHUNK_TOKENS
) -> list[Advance]:
    """The advances of the stream that `segments` and `opener` (packed ids) spell, in order.

    None is empty; their ids joined are the stream. Raises ContentError for bytes that are no ids.
    """
    found: list[Advance] = []
    start = 0
    for block, run in _runs(segments, opener):
        ids = unpack(run)
        for offset in range(0, len(ids), chunk_tokens):
            found.append(Advance(ids[offset : offset + chunk_tokens], block, start + offset))
        start += len(ids)
    return found


def _runs(segments: Sequence[Segment], opener: bytes) -> Iterator[tuple[int, bytes]]:
    """The packed ids that belong to each block's advance."""
    if not segments:
        yield -1, opener
        return
    for block, segment in enumerate(segments):
        own_head = b"" if _gives_head(segments, block) else segment.head
        if block + 1 == len(segments):
            following = opener
        else:
            following = segments[block + 1].head if _gives_head(segments, block + 1) else b""
        yield block, own_head + segment.content + following


def _gives_head(segments: Sequence[Segment], block: int) -> bool:
    return block > 0 and segments[block].role == Role.MODEL.value


def stream_tokens(segments: Sequence[Segment], opener: bytes) -> int:
    """The length of the stream in tokens, without unpacking it."""
    size = len(opener) + sum(len(segment.head) + len(segment.content) for segment in segments)
    return size // TOKEN_BYTES
