"""Streams in use: the table, the back end and the exports, kept in step.

Every change of a stream goes through here: the back end first, then the table. After each one the
back end's length is what the table says, or the stream is cleared: recomputing is always right,
a wrong prefix never is. A stream that cannot even be emptied is retired.

A prompt gets the longest prefix that is valid for it, whether a stream holds it or the tiers do:

1. If the tiers have more than the best stream, by so much that it is worth reading
   (`Tiers.is_worth`), that is restored: on the best stream if it loses no long tail by that
   (`tail_tokens_min`), else on an empty one or the least recently used.
2. If the best stream would lose a long tail, and the tiers have what it would keep, that is
   restored on another stream, unless the stream is itself the one to go first: so a branch leaves
   the conversation that it left resident.
3. Else the stream is cut back, as `streams.py` says.

A restore that fails leaves its stream empty, and the prompt is computed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.worker.backend import Backend, Logits
from actors.worker.exports import Exports
from actors.worker.schedule import Advance
from actors.worker.streams import Choice, Streams
from actors.worker.tiers import Fetched, Tiers
from protocol.errors import WorkerFault
from protocol.ids import ChainId, ProfileId
from protocol.publication import PUBLIC

log = logging.getLogger("huginn.worker")


@dataclass(slots=True)
class Found:
    """What of a prompt was there, and where: tokens by tier, pages that were verified, and the
    reasons of those that were refused."""

    tier_to_tokens: dict[str, int] = field(default_factory=dict)
    pages_verified: int = 0
    pages_refused: list[str] = field(default_factory=list)


class Seat(NamedTuple):
    """A leased stream, of whose boundaries the first `keep` (`tokens` tokens) are the prompt's."""

    stream: int
    keep: int
    tokens: int
    found: Found


class Seats:
    """All methods run on the engine's thread."""

    def __init__(self, backend: Backend, profile: ProfileId, tiers: Tiers | None = None) -> None:
        self._backend = backend
        self._tiers = tiers
        self.streams = Streams(backend.streams)
        self.exports = Exports(backend, self.streams, profile, tiers)

    def take(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> Seat | None:
        """Lease a stream that holds what of `chains` is to be had, the first `public` of them from
        the public domain too; None if all are leased.

        Raises WorkerFault if the back end cannot cut it (it is then cleared) or has no stream
        left that works.
        """
        if not self.streams.usable():
            raise WorkerFault("no stream of the back end works any more: restart the worker")
        choice = self.streams.choose(domain, chains, public)
        if choice is None:
            return None
        found = Found()
        seat = self._from_tiers(choice, domain, chains, public, found)
        if seat is None:
            # Chosen anew: a restore that failed has emptied a stream, or retired it.
            choice = self.streams.choose(domain, chains, public)
            if choice is None:
                raise WorkerFault("a restore failed, and no idle stream is left that works")
            self._cut(choice)
            found.tier_to_tokens = {"device": choice.tokens}
            seat = choice
        self.streams.lease(seat, domain)
        return Seat(*seat, found)

    def take_spare(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> Choice | None:
        """A stream on which `chains` can go on at nobody's expense, not leased; None if none."""
        choice = self.streams.choose_spare(domain, chains, public)
        if choice is not None and choice.keep < len(chains):
            self._cut(choice)
            self.streams.occupy(choice, domain)
        return choice

    def withdraw(self) -> None:
        """Nothing is public any more, in streams or tiers. Raises StoreFault if pages stay."""
        self.streams.withdraw()
        if self._tiers is not None:
            self._tiers.drop(PUBLIC)

    def forget(self, domains: Collection[str]) -> None:
        """Nothing is left of `domains`, in streams or tiers; their jobs have ended. Raises
        StoreFault if pages or a key stay."""
        for stream in self.streams:
            if stream.domain in domains and not stream.retired:
                self.clear(stream.index)
        if self._tiers is not None:
            for domain in domains:
                self._tiers.erase(domain)

    def feed(
        self, stream: int, advance: Advance, chain: ChainId, *, logits: bool, public: bool = False
    ) -> Logits | None:
        """Feed one advance. Raises WorkerFault; the stream is then cleared if it was not leased."""
        try:
            self.exports.before_feed(stream, len(advance.ids))
            self._expect(stream, advance.start)
            found = self._backend.advance(stream, advance.ids, logits=logits)
            self._expect(stream, advance.stop)
        except Exception:
            if not self.streams[stream].leased:
                self.clear(stream)
            raise
        self.streams.extend(stream, chain, advance.stop, public=public)
        return found

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        """Feed one token to each stream, behind what is canonical. Raises WorkerFault."""
        for stream, _ in items:
            self.exports.before_feed(stream, 1)
        lengths = [self._backend.length(stream) for stream, _ in items]
        found = self._backend.decode(items)
        for (stream, _), length in zip(items, lengths, strict=True):
            self._expect(stream, length + 1)
        return found

    def restore(self, stream: int, tokens: int) -> None:
        """Bring a stream back to `tokens` after a failed decode. Raises WorkerFault."""
        if self._backend.length(stream) > tokens:
            self._backend.truncate(stream, tokens)
        self._expect(stream, tokens)

    def leave(self, stream: int) -> bool:
        """End a lease. What decode wrote is cut off; whether the canonical part is still there."""
        tokens = self.streams[stream].tokens
        try:
            if self._backend.length(stream) != tokens:
                self._backend.truncate(stream, tokens)
            self._expect(stream, tokens)
        except Exception as error:
            log.warning("stream %d could not be cut back and is cleared: %s", stream, error)
            self.clear(stream)
            return False
        self.streams.release(stream)
        return True

    def clear(self, stream: int) -> None:
        """Empty a stream and end its lease; retire it if the back end cannot."""
        self.exports.drop(stream)
        try:
            self._backend.truncate(stream, 0)
            self._expect(stream, 0)
        except Exception:
            log.exception("stream %d cannot be emptied and is retired", stream)
            self.streams.retire(stream)
        else:
            self.streams.clear(stream)

    def clear_all(self) -> None:
        """Empty every stream."""
        for stream in self.streams:
            if not stream.retired:
                self.clear(stream.index)

    def _from_tiers(
        self, choice: Choice, domain: str, chains: Sequence[ChainId], public: int, found: Found
    ) -> Choice | None:
        """Restore what the tiers have, if that is better than `choice`; None if it is not or
        could not be done."""
        if self._tiers is None:
            return None
        found.pages_refused += self._tiers.lost(domain, chains, public)
        pages = self._tiers.longest(domain, chains, public)
        if not pages or self._target(choice, pages[-1].stop) is None:
            return None
        fetched = self._tiers.fetch(pages, self._backend.sliding_start)
        found.pages_verified = len(fetched.infos)
        found.pages_refused += fetched.refused
        target = self._target(choice, fetched.tokens)
        if target is None:
            return None
        try:
            self._cut(Choice(target, 0, 0))
            self._fill(target, domain, fetched)
        except Exception as error:
            log.warning("a restore of %d tokens failed: %s", fetched.tokens, error)
            self.clear(target)
            found.pages_refused.append("restore")
            return None
        found.tier_to_tokens = fetched.tier_to_tokens
        return Choice(target, len(fetched.infos), fetched.tokens)

    def _target(self, choice: Choice, tokens: int) -> int | None:
        """On which stream `tokens` tokens from the tiers are to be restored, by the rule above;
        None if `choice` is better."""
        assert self._tiers is not None
        long = self.streams.lost(choice) >= self._tiers.tail_tokens_min
        if self._tiers.is_worth(gain=tokens - choice.tokens, tokens=tokens):
            return self.streams.cheapest() if choice.tokens and long else choice.stream
        if choice.tokens and long and tokens >= max(choice.tokens, self._tiers.tail_tokens_min):
            other = self.streams.cheapest()
            return other if other != choice.stream else None
        return None

    def _fill(self, stream: int, domain: str, fetched: Fetched) -> None:
        """Restore into an empty stream. Raises WorkerFault."""
        tokens = fetched.tokens
        sliding_from = self._backend.sliding_start(tokens)
        self._backend.restore(stream, fetched.rows, tokens=tokens, sliding_from=sliding_from)
        self._expect(stream, tokens)
        self.streams.occupy(Choice(stream, 0, 0), domain)
        stops = [info.page.start + info.page.tokens for info in fetched.infos]
        floor = next(stop for stop in stops if self._backend.can_truncate(stream, stop))
        self.streams.fill(stream, fetched.infos, floor)
        self.exports.restored(stream)

    def _cut(self, choice: Choice) -> None:
        """Cut the chosen stream back. WorkerFault if that fails; it is then cleared."""
        try:
            self.exports.before_cut(choice.stream, choice.keep)
            if self._backend.length(choice.stream) != choice.tokens:
                self._backend.truncate(choice.stream, choice.tokens)
            self._expect(choice.stream, choice.tokens)
        except Exception:
            self.clear(choice.stream)
            raise

    def _expect(self, stream: int, tokens: int) -> None:
        length = self._backend.length(stream)
        if length != tokens:
            raise WorkerFault(
                f"stream {stream} holds {length} positions where {tokens} were fed",
                stream=stream,
                length=length,
                tokens=tokens,
            )
