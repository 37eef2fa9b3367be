"""The back ends that the conformance suites run on, and how to feed one and compare two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from actors.worker.backend import Backend, PageRows
from protocol.tokens import TokenIds
from tests.fake_backend import FakeBackend
from tests.model_fixtures import open_real, open_tiny

if TYPE_CHECKING:
    from actors.worker.backend import Logits

OPEN: dict[str, Callable[[], Backend]] = {
    "fake": FakeBackend,
    "tiny": open_tiny,
    "real": open_real,
}
KINDS = ["fake", "tiny", pytest.param("real", marks=pytest.mark.model)]
# Lengths around the kernels' own thresholds: one token, below and above 64.
SCHEDULE = (3, 70, 1, 33)


def ids_for(backend: Backend, count: int, seed: int = 0) -> TokenIds:
    """Content ids, the same for the same seed."""
    tokens = backend.tokenizer.contract.vocabulary_tokens
    drawn = np.random.default_rng(seed).integers(0, tokens, size=4 * count + 64)
    return tuple(int(t) for t in drawn if int(t) not in backend.tokenizer.deny)[:count]


def feed(
    backend: Backend, stream: int, ids: TokenIds, schedule: tuple[int, ...] = SCHEDULE
) -> tuple[Logits, list[PageRows]]:
    """Advance by `schedule`, exporting each chunk straight after it."""
    assert sum(schedule) <= len(ids)
    pages, logits = [], None
    for count in schedule:
        start = backend.length(stream)
        chunk, ids = ids[:count], ids[count:]
        logits = backend.advance(stream, chunk, logits=True)
        first = max(start, start + count - backend.export_tokens_max)
        pages.append(backend.export(stream, first, start + count))
    assert logits is not None
    return logits.copy(), pages


def same(one: Logits | None, other: Logits | None) -> bool:
    """Whether two arrays of logits are the same bytes."""
    return one is not None and other is not None and one.tobytes() == other.tobytes()
