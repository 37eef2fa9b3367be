"""Histories of a stream for tests: fed call by call, restored from pages, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.worker.backend import Backend, PageRows
from protocol.tokens import TokenIds
from tests.backends import ids_for

# Tokens of the advance by which two streams are compared: enough to fill the kernels' tiles.
PROBE = 64
# Calls of a history that is fed again in an instant.
FEW = 3


@dataclass
class History:
    """What was fed to one stream, call by call, and the page of each call."""

    calls: list[tuple[str, TokenIds]] = field(default_factory=list)
    pages: list[PageRows] = field(default_factory=list)

    def length(self, calls: int | None = None) -> int:
        """How many tokens the first `calls` fed."""
        return sum(len(ids) for _, ids in self.calls[:calls])

    def feed(self, backend: Backend, stream: int, call: str, ids: TokenIds) -> None:
        """Feed `ids`, and keep them and their page."""
        start = backend.length(stream)
        apply(backend, stream, call, ids)
        self.calls.append((call, ids))
        self.pages.append(backend.export(stream, start, start + len(ids)))

    def repeat(self, backend: Backend, stream: int) -> None:
        """Feed it all to an empty stream: the oracle."""
        for call, ids in self.calls:
            apply(backend, stream, call, ids)

    def cut(self, calls: int) -> History:
        """The first `calls` calls."""
        return History(self.calls[:calls], self.pages[:calls])

    def restore(self, backend: Backend, stream: int, sliding_from: int | None = None) -> None:
        """Restore it all into an empty stream, from no more bytes than that takes."""
        tokens = self.length()
        if sliding_from is None:
            sliding_from = backend.sliding_start(tokens)
        pages, at = [], 0
        for page, (_, ids) in zip(self.pages, self.calls, strict=True):
            at += len(ids)
            pages.append(page if at > sliding_from else PageRows(page.full, b""))
        backend.restore(stream, pages, tokens=tokens, sliding_from=sliding_from)


def apply(backend: Backend, stream: int, call: str, ids: TokenIds) -> None:
    if call == "advance":
        backend.advance(stream, ids, logits=False)
    else:
        backend.decode([(stream, ids[0])])


def history(backend: Backend, stream: int, counts: Sequence[int], seed: int = 0) -> History:
    """Advances of `counts` tokens, fed to an empty stream."""
    made = History()
    for number, count in enumerate(counts):
        made.feed(backend, stream, "advance", ids_for(backend, count, seed=seed + number))
    return made


def costly(backend: Backend) -> bool:
    """Whether this is the default model: its window is longer than what is fed at once."""
    return backend.export_tokens_max > backend.chunk_tokens


def continuation(backend: Backend, stream: int, probe: int = PROBE) -> list[bytes]:
    """What the stream says next, then cut off again: the logits and the page of an advance, six
    greedy tokens with their logits, and their rows. The window's rows before all that come first.
    """
    length = backend.length(stream)
    behind = max(0, length - backend.export_tokens_max)
    pages = [backend.export(stream, behind, length)]
    logits = backend.advance(stream, ids_for(backend, probe, seed=77), logits=True)
    assert logits is not None
    said = [logits.tobytes()]
    stop = length + probe
    pages.append(backend.export(stream, max(length, stop - backend.export_tokens_max), stop))
    for _ in range(6):
        token = int(logits.argmax())
        logits = backend.decode([(stream, token)])[0]
        said += [token.to_bytes(4, "little"), logits.tobytes()]
    pages.append(backend.export(stream, stop, stop + 6))
    backend.truncate(stream, length)
    return said + [section for page in pages for section in (page.full, page.sliding)]
