"""Pages that a stream still owes: their digests, who waits for them, and the tiers that keep them.

A sliding layer's rows can be exported only while they lie within `export_tokens_max` of the
stream's end. So every boundary is exported before the next feed would push its advance out of
reach, and otherwise when the engine has nothing better to do: never between a prompt's arrival and
its first token, unless the window forces it. Boundaries are exported in order; those that are done
are a prefix of the stream's, and are kept with it, so a warm turn digests its new advances only.

An advance longer than that can never be exported, and an export may fail. Either costs digests and
pages, never an answer: the stream goes on without. With tiers, a stream that is about to be cut is
exported first: what a stream loses, the tiers have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from actors.worker.backend import Backend, PageRows
from actors.worker.pages import page_digest, state_digest
from actors.worker.streams import Streams
from actors.worker.tiers import Tiers
from protocol.ids import ProfileId, StateId
from protocol.publication import PUBLIC
from store.pages.tier import Page

log = logging.getLogger("huginn.worker")


@dataclass(frozen=True, slots=True)
class _Watch:
    stream: int
    boundaries: int
    then: Callable[[StateId | None], None]


class Exports:
    """Runs on the engine's thread, between its other steps."""

    def __init__(
        self, backend: Backend, streams: Streams, profile: ProfileId, tiers: Tiers | None = None
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._profile = profile
        self._tiers = tiers
        self._done = [0] * len(streams)  # boundaries with a page digest, by stream
        self._broken = [False] * len(streams)
        self._watches: list[_Watch] = []
        self.exported_pages = 0

    def watch(self, stream: int, boundaries: int, then: Callable[[StateId | None], None]) -> None:
        """Call `then` with the state digest of the stream's first `boundaries` boundaries as soon
        as all their pages are digested (at once if they are), or with None if they never are."""
        self._watches.append(_Watch(stream, boundaries, then))
        self._settle_watches(stream)

    def step(self) -> bool:
        """Export one page, if any is owed; whether one was."""
        for stream in range(len(self._streams)):
            if self._owes(stream):
                self._export_next(stream)
                return True
        return False

    def before_feed(self, stream: int, tokens: int) -> None:
        """Export what a feed of `tokens` would push out of reach."""
        reach = self._backend.length(stream) + tokens - self._backend.export_tokens_max
        while self._owes(stream) and self._start(stream) < reach:
            self._export_next(stream)

    def before_cut(self, stream: int, keep: int) -> None:
        """The stream is about to lose all but its first `keep` boundaries: export what a watch
        or a tier still needs, then forget the rest."""
        needed = max((w.boundaries for w in self._watches if w.stream == stream), default=0)
        if self._tiers is not None:
            needed = len(self._streams[stream].boundaries)
        while needed > keep and self._done[stream] < needed and self._owes(stream):
            self._export_next(stream)
        self._give_up(stream, keep)
        self._done[stream] = min(self._done[stream], keep)
        if self._done[stream] == keep:
            self._broken[stream] = False

    def restored(self, stream: int) -> None:
        """The stream was filled from pages: their digests are known."""
        self._done[stream] = len(self._streams[stream].boundaries)

    def drop(self, stream: int) -> None:
        """The stream was cleared."""
        self._give_up(stream, 0)
        self._done[stream] = 0
        self._broken[stream] = False

    def _owes(self, stream: int) -> bool:
        return not self._broken[stream] and self._done[stream] < len(
            self._streams[stream].boundaries
        )

    def _start(self, stream: int) -> int:
        done = self._done[stream]
        return self._streams[stream].boundaries[done - 1].tokens if done else 0

    def _export_next(self, stream: int) -> None:
        boundary = self._streams[stream].boundaries[self._done[stream]]
        start = self._start(stream)
        try:
            rows = self._backend.export(stream, start, boundary.tokens)
        except Exception as error:
            log.warning("no state digests from token %d of stream %d: %s", start, stream, error)
            self._broken[stream] = True
            self._give_up(stream, self._done[stream])
            return
        boundary.page = page_digest(rows)
        self._keep(stream, rows)
        self._done[stream] += 1
        self.exported_pages += 1
        self._settle_watches(stream)

    def _keep(self, stream: int, rows: PageRows) -> None:
        """Give the page that was just exported to the tiers."""
        held, done = self._streams[stream], self._done[stream]
        if self._tiers is None or held.domain is None:
            return
        start = self._start(stream)
        page = Page(
            domain=PUBLIC if held.boundaries[done].public else held.domain,
            chain=held.boundaries[done].chain,
            parent=held.boundaries[done - 1].chain if done else None,
            profile=self._profile,
            start=start,
            tokens=held.boundaries[done].tokens - start,
        )
        self._tiers.keep(page, rows)

    def _settle_watches(self, stream: int) -> None:
        done = self._done[stream]
        if self._broken[stream]:
            self._give_up(stream, done)
        ready = [w for w in self._watches if w.stream == stream and w.boundaries <= done]
        self._watches = [w for w in self._watches if w.stream != stream or w.boundaries > done]
        for watch in ready:
            boundaries = self._streams[stream].boundaries[: watch.boundaries]
            watch.then(state_digest(b.page for b in boundaries if b.page is not None))

    def _give_up(self, stream: int, keep: int) -> None:
        lost = [w for w in self._watches if w.stream == stream and w.boundaries > keep]
        self._watches = [w for w in self._watches if w.stream != stream or w.boundaries <= keep]
        for watch in lost:
            watch.then(None)
