"""What a worker needs of a model library: streams of KV state, and nothing of policy.

A back end holds `streams` independent sequences of at most `context_tokens` positions. The worker
decides what is fed, in which pieces and when; the back end feeds exactly that. Every call runs on
the worker's one engine thread and may take seconds; none is safe to call from two threads.

After every call that sets or removes, a stream of length n has positions 0 … n-1 and nothing else.
A back end that cannot be sure of that clears the stream and raises WorkerFault: recomputing is
always right, a wrong prefix never is.

Sliding-window layers look back a bounded way, so a restored stream may lack their oldest rows. From
where it has them is the stream's *lower bound*: 0 for a stream that was fed. Nothing that is fed
next can tell, but a stream cannot be cut back to where the missing rows would be looked at.

Logits are lent: they may be the library's own buffer, a megabyte for each token of a large
vocabulary. Who is given them may change them, until the next `advance` or `decode`, and reads
nothing in them afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from protocol.errors import ProfileFault
from protocol.page import PageRows
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds

__all__ = ["Backend", "Logits", "Memory", "PageRows"]

Logits = npt.NDArray[np.float32]


class Memory(NamedTuple):
    """What a loaded model takes, in bytes. `kv_token`: the rows of one position, as in pages. `kv`:
    what is allocated for the rows of all streams, used or not. `device`: that and the weights, on
    the device that computes; on a CPU they are the process's own. What the library allocates beside
    them to compute is not counted."""

    kv_token: int
    kv: int
    device: int


class Backend(Protocol):
    """One loaded model. Sizes are tokens; a stream is an index in 0 … streams-1.

    `chunk_tokens` is the largest run that one `advance` takes; `group_max` how many streams one
    `decode` may carry, each of which gives the bits of a solo run where the profile's generation is
    reproducible; `export_tokens_max` how far back from its end a stream's rows can be exported in
    full.
    """

    streams: int
    context_tokens: int
    chunk_tokens: int
    group_max: int
    export_tokens_max: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the model that is loaded."""

    @property
    def memory(self) -> Memory:
        """What it takes; the same from its opening to its end."""

    def length(self, stream: int) -> int:
        """How many positions the stream holds."""

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        """Feed `ids` (1 … chunk_tokens of them) at the stream's end, alone in the batch.

        Returns the logits after the last id, shape (vocabulary,), float32, lent until the next
        `advance` or `decode`, if asked for; None otherwise. Raises WorkerFault if the library
        fails; the stream is then as it was before, or empty.
        """

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        """Feed one id to each of 1 … group_max streams in one batch: [(stream, id), …].

        Returns each one's logits in the order of `items`, lent as `advance` does. Raises
        WorkerFault.
        """

    def can_truncate(self, stream: int, tokens: int) -> bool:
        """Whether `truncate` would do it: `tokens` is in 0 … length, and the stream has the sliding
        rows that it needs at that length (`sliding_start`). Always so for a stream that was fed."""

    def truncate(self, stream: int, tokens: int) -> None:
        """Keep the first `tokens` positions (0 … length); the rest is gone. Raises WorkerFault,
        and changes nothing, where `can_truncate` says no."""

    def sliding_start(self, tokens: int) -> int:
        """From which position on a stream of `tokens` positions has to have sliding rows, so that
        its continuation is the same bytes: 0 … tokens. Never decreases with `tokens`."""

    def restore(
        self, stream: int, pages: Sequence[PageRows], *, tokens: int, sliding_from: int
    ) -> None:
        """Make an empty stream hold positions 0 … tokens-1 (tokens ≥ 1), taken from `pages`.

        The pages are consecutive runs from position 0 on, as `export` gave them on any stream of
        any back end with this profile; they are copied. What follows is the same bytes as after
        feeding: logits, rows, decodes. `sliding_from` becomes the stream's lower bound: it is
        `sliding_start(t)` for some t ≤ tokens (t = tokens reads least, a smaller one lets the
        stream be cut back to t), and a page that ends at or before it may have an empty `sliding`.

        The caller has verified every page's digest: a changed byte that is still a number is not
        seen here. Raises WorkerFault for a stream that is not empty (which stays as it is), for
        pages that are not as many whole positions as `tokens`, and if the library refuses them: the
        stream is then empty, and as good as new.
        """

    def export(self, stream: int, start: int, stop: int) -> PageRows:
        """The rows of positions start … stop-1, none of them further than `export_tokens_max`
        from the stream's end. Raises WorkerFault for rows that the library no longer gives.
        A restored row comes back as it was put in."""

    def close(self) -> None:
        """Free the model. Any later call raises WorkerFault."""


def check_backend(backend: Backend, chunk_tokens: int) -> None:
    """Raises ProfileFault for a back end that takes fewer than `chunk_tokens` tokens at a time."""
    if backend.chunk_tokens < chunk_tokens:
        raise ProfileFault(
            f"the schedule feeds {chunk_tokens} tokens at a time; this back end takes at most "
            f"{backend.chunk_tokens}"
        )
