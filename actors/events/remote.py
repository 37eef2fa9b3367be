"""Following a source of another installation: its log here, as far as it proves itself.

A follower first reads pages up to the other side's newest entry, then listens to its stream. Where
that is refused (there is none, or junk is in it) `reason` says so, and the follower polls until it
tries the stream again. Every entry is verified with the key that was pinned when the
source was added; what comes too early is parked, and what lies between is asked for; what came
before is compared. Each thing that can be wrong is an outcome of its own, in `state` and `reason`:
a lost connection (`disconnected`, tried again), entries that do not verify (`refused`, tried again,
and nothing of them is kept), two entries for one number (`forked`: kept as evidence, and the log
stands still until a person removes the source).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Literal, NoReturn

from actors.events.ports import Hole, RemoteFeed, RemotePage
from actors.events.registry import KnownSource
from actors.ports import Entropy
from protocol.errors import FeedLost, FeedRefused, HuginnError
from protocol.event_log import EVIDENCE, START, Entry, Outcome, Position, SourceLog, Verdict
from protocol.ids import EventId
from store.commit import settled
from store.events import EventLogs, StoredEvent

log = logging.getLogger("huginn.events")

State = Literal["following", "disconnected", "refused", "forked"]

PAGE_ENTRIES: Final = 256
POLL_NS: Final = 25 * 10**9
# The first try again comes after about half a second, the later ones after up to a minute.
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 60.0
_DOUBLINGS_MAX: Final = 16
# Signatures between two moments in which others are served.
_VERIFY_MAX: Final = 32
_AGAIN: Final = frozenset({Verdict.KNOWN, Verdict.FORGOTTEN})
_WAITING: Final = frozenset({Verdict.PARKED, Verdict.FULL})


class _Refused(Exception):
    """What the other side sent is not the source's log."""


class _Forked(Exception):
    """There is evidence of two histories."""


class Follower:
    """One remote source. `publish` is told of what became durable, `skip` of numbers that the
    other side keeps no longer. `pause` waits for seconds."""

    def __init__(
        self,
        source: KnownSource,
        logs: EventLogs,
        feed: RemoteFeed,
        entropy: Entropy,
        *,
        publish: Callable[[Sequence[StoredEvent]], None],
        skip: Callable[[int], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.source = source
        self.state: State = "disconnected"
        self.reason: str | None = "not reached yet"
        self.duplicates = 0
        self._logs = logs
        self._feed = feed
        self._entropy = entropy
        self._publish = publish
        self._skip = skip
        self._pause = pause
        self._remote = source.remote()
        # Accepted and not kept yet: an entry for one of these numbers is compared with them.
        self._fresh: dict[int, EventId] = {}
        self._known = self._opened()
        self._hole: Hole | None = None
        self._failures = 0
        self._stream_failures = 0
        self._unstreamed: str | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def parked(self) -> int:
        return self._known.parked

    def start(self) -> None:
        """Begins to follow, in a task of its own."""
        if self._known.stands_still:
            self._say("forked", "two entries for one number are kept as evidence")
        else:
            self._task = asyncio.create_task(self._run(), name=f"follow {self.source.name}")

    async def stop(self) -> None:
        """Ends; what was accepted is kept."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- the loop ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._catch_up()
                await self._listen()
                raise FeedLost("the other installation ended the stream")
            except FeedLost as error:
                self._say("disconnected", error.message)
            except (_Refused, FeedRefused) as error:
                self._say("refused", str(error))
            except _Forked as error:
                self._say("forked", str(error))
                return
            except HuginnError as error:
                # Ours: the disk, most likely. What is known is made anew from what is kept.
                self._known = self._opened()
                self._say("disconnected", f"what comes cannot be kept here: {error.message}")
            except Exception:
                log.exception("following %s failed", self.source.name)
                self._known = self._opened()
                self._say("disconnected", "a fault here; the log of the service says which")
            self._failures += 1
            await self._pause(self._backoff(self._failures))

    async def _catch_up(self) -> None:
        """Reads pages until nothing lies ahead."""
        while True:
            page = await self._page(self._known.head.seq, 0)
            if not page.entries:
                return

    async def _page(self, after: int, wait_ns: int, limit: int = PAGE_ENTRIES) -> RemotePage:
        page = await self._feed.page(self._remote, after, limit, wait_ns)
        if page.hole is not None:
            self._hole = page.hole
        await self._take(page.entries)
        self._follows()
        return page

    async def _listen(self) -> None:
        """Takes what comes, until the connection ends."""
        while True:
            try:
                await self._stream()
                return
            except FeedRefused as error:
                self._stream_failures += 1
                if error.message != self._unstreamed:
                    log.info("%s is polled: %s", self.source.name, error.message)
                self._unstreamed = error.message
            await self._poll()

    async def _stream(self) -> None:
        items = self._feed.stream(self._remote, self._known.head.seq)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Hole):
                    self._hole = item
                    continue
                before = self._known.head.seq
                await self._take([item])
                if self._known.head.seq > before:
                    # It brings the log on: there is a stream.
                    self._stream_failures, self._unstreamed = 0, None
                self._follows()

    async def _poll(self) -> None:
        """Asks for pages until it is time to try the stream again."""
        waited = asyncio.ensure_future(self._pause(self._backoff(self._stream_failures)))
        try:
            while not waited.done():
                await self._page(self._known.head.seq, POLL_NS)
        finally:
            waited.cancel()

    def _backoff(self, failures: int) -> float:
        """Seconds until the next try: doubled each time, and a random half of it taken off."""
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * float(1 << doublings))
        drawn = int.from_bytes(self._entropy.draw(2), "big") / 2**16
        return longest * (0.5 + drawn / 2)

    def _follows(self) -> None:
        self._failures = 0
        said = []
        if self._unstreamed is not None:
            said.append(f"its stream was refused, and is tried again: {self._unstreamed}")
        if self.duplicates:
            said.append(f"{self.duplicates} entries came more than once")
        self._say("following", "; ".join(said) or None)

    def _say(self, state: State, reason: str | None) -> None:
        if state != self.state:
            log.info("source %s: %s%s", self.source.name, state, f": {reason}" if reason else "")
        self.state, self.reason = state, reason

    # -- what came ---------------------------------------------------------------------------

    async def _take(self, entries: Sequence[bytes]) -> None:
        """Keeps what is the log's, and asks for what lies between. Raises _Refused, _Forked."""
        before = self._known.head.seq
        await self._offer(entries)
        # What is asked for may itself lack something; each round has to bring the log on.
        while (missing := self._known.missing()) is not None:
            seq = self._known.head.seq
            limit = min(PAGE_ENTRIES, missing.last - seq)
            page = await self._feed.page(self._remote, seq, limit, 0)
            if page.hole is not None:
                self._hole = page.hole
            await self._offer(page.entries)
            if self._known.head.seq == seq:
                raise FeedLost(
                    f"numbers {missing.first} … {missing.last} are not given, and "
                    f"{self._known.parked} later ones wait for them"
                )
        if self._known.head.seq > before:
            self._failures = 0

    async def _offer(self, entries: Sequence[bytes]) -> None:
        accepted = list[Entry]()
        wrong: Outcome | None = None
        for index, body in enumerate(entries):
            await self._step_over(body, accepted)
            for outcome in self._known.offer(body):
                if outcome.verdict is Verdict.ACCEPTED and outcome.entry is not None:
                    accepted.append(outcome.entry)
                    self._fresh[outcome.entry.event.seq] = outcome.entry.id
                elif outcome.verdict in _AGAIN:
                    self.duplicates += 1
                elif outcome.verdict not in _WAITING:
                    wrong = wrong or outcome
            if wrong is not None:
                break
            if index % _VERIFY_MAX == _VERIFY_MAX - 1:
                await asyncio.sleep(0)
        await self._keep(accepted)
        if wrong is not None:
            self._judge(wrong)

    async def _keep(self, accepted: Sequence[Entry]) -> None:
        if accepted:
            stored = [self._stored(entry) for entry in accepted]
            await settled(self._logs.append_soon(stored))
            self._publish(stored)
            self._fresh.clear()

    def _judge(self, wrong: Outcome) -> NoReturn:
        """Raises what `wrong` is; what the source did sign itself is kept as evidence."""
        if wrong.verdict in EVIDENCE and wrong.entry is not None:
            self._logs.keep_evidence(self._stored(wrong.entry))
            raise _Forked(wrong.reason)
        raise _Refused(f"{wrong.verdict.value}: {wrong.reason}")

    async def _step_over(self, body: bytes, accepted: list[Entry]) -> None:
        """If `body` is the entry after a hole that the other side told of, goes on from there.

        What is kept of before the hole goes, because a log is dense: readers see all of it as one
        gap. The entry itself says, signed, which one it follows.
        """
        hole = self._hole
        if hole is None or hole.last <= self._known.head.seq:
            return
        probe = SourceLog(self.source.public_key, id_at=_nothing)
        outcome = probe.offer(body)[0]
        if outcome.entry is None or outcome.entry.event.seq != hole.last + 1:
            return
        await self._keep(accepted)
        accepted.clear()
        event = outcome.entry.event
        assert event.prev is not None, "only entry 1 follows none, and a hole ends at 1 or later"
        log.warning(
            "source %s: numbers up to %d are kept no longer where it comes from",
            self.source.name,
            hole.last,
        )
        self._logs.skip(self.source.id, hole.last, event.prev)
        self._skip(hole.last)
        self._known = self._opened()
        self._hole = None

    def _opened(self) -> SourceLog:
        """What is known of the source, from what is kept."""
        self._fresh = {}
        kept = self._logs.range(self.source.id)
        head = START
        if kept.head:
            last = self._logs.read(self.source.id, kept.head - 1, 1)
            head = Position(kept.head, kept.id, last[0].hlc if last else 0)
        return SourceLog(
            self.source.public_key,
            id_at=self._id_at,
            head=head,
            stands_still=bool(self._logs.evidence(self.source.id)),
        )

    def _id_at(self, seq: int) -> EventId | None:
        if seq in self._fresh:
            return self._fresh[seq]
        found = self._logs.read(self.source.id, seq - 1, 1)
        return found[0].id if found and found[0].seq == seq else None

    def _stored(self, entry: Entry) -> StoredEvent:
        event = entry.event
        return StoredEvent(event.source, event.seq, entry.id, event.hlc, event.kind, entry.body)


def _nothing(seq: int) -> EventId | None:
    return None
