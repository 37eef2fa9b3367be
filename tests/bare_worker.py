"""What a worker must come to, without the worker: the back end, the schedule, and a plain loop.

Nothing of the engine, the streams or the exports is used: one fresh stream, the advances of the
naive schedule in order, a page digest after each, then greedy decode one token at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from actors.worker.backend import Backend
from actors.worker.pages import page_digest, state_digest
from protocol.ids import StateId
from protocol.messages.assembler import Segment
from protocol.tokens import TokenIds, unpack


class Bare(NamedTuple):
    ids: TokenIds
    digest: StateId


def pieces(segments: Sequence[Segment], opener: TokenIds, chunk_tokens: int) -> list[TokenIds]:
    """The schedule by its definition: every token has an owner, owners are cut into chunks."""
    owned: list[tuple[int, int]] = []
    for index, block in enumerate(segments):
        owner = index - 1 if block.role == "model" and index else index
        owned += [(owner, token) for token in unpack(block.head)]
        owned += [(index, token) for token in unpack(block.content)]
    owned += [(len(segments) - 1, token) for token in opener]
    found: list[TokenIds] = []
    for owner in range(-1, len(segments)):
        run = [token for own, token in owned if own == owner]
        found += [tuple(run[at : at + chunk_tokens]) for at in range(0, len(run), chunk_tokens)]
    return found


def bare_answer(
    backend: Backend,
    segments: Sequence[Segment],
    opener: TokenIds,
    *,
    tokens_max: int,
    stop_ids: frozenset[int],
    chunk_tokens: int,
    stream: int = 0,
) -> Bare:
    """The greedy answer's ids, and the prompt's state digest. Empties the stream first."""
    backend.truncate(stream, 0)
    fed = pieces(segments, opener, chunk_tokens)
    pages = []
    for piece in fed:
        start = backend.length(stream)
        logits = backend.advance(stream, piece, logits=True)
        pages.append(page_digest(backend.export(stream, start, start + len(piece))))
    denied = sorted(backend.tokenizer.deny - stop_ids)
    answer: list[int] = []
    while True:
        assert logits is not None
        logits[denied] = -np.inf
        token = int(np.argmax(logits))
        if token in stop_ids:
            break
        answer.append(token)
        if len(answer) == tokens_max or backend.length(stream) + 1 >= backend.context_tokens:
            break
        logits = backend.decode([(stream, token)])[0]
    backend.truncate(stream, 0)
    return Bare(tuple(answer), state_digest(pages))
