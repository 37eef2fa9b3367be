"""Which jobs are open, how many may be, and the cancellations that came before their job; and how
many questions after pages are answered at once.

Lives in the room's event loop. It counts jobs and nothing else, so that whether a prompt is
admitted never depends on what anybody's prefix state holds (I-NO-PRESENCE).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from actors.ports import Clock
from actors.worker.jobs import Job, JobKey, Owner, Settlement
from actors.worker.limits import WorkerLimits
from protocol.errors import Conflict, LimitExceeded, Unavailable


class Admission:
    """The open jobs of one worker."""

    def __init__(self, clock: Clock, limits: WorkerLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._jobs: dict[JobKey, Job] = {}
        self._settlements: set[Settlement] = set()
        self._tombstones: dict[JobKey, int] = {}  # to when it expires; oldest first
        self._page_asks = 0
        self._closed = False
        self._change = asyncio.Event()

    @property
    def settlements(self) -> list[Settlement]:
        return list(self._settlements)

    def close(self) -> None:
        """Nothing is admitted any more."""
        self._closed = True

    async def emptied(self) -> None:
        """Returns as soon as no job is open."""
        while self._jobs:
            self._change.clear()
            await self._change.wait()

    def check_job(self, key: JobKey) -> None:
        """Raises Unavailable when full or closed, Conflict if a job of that name is open."""
        self._check_open()
        if key in self._jobs:
            raise Conflict(f"response {key.response!r:.80} is being generated: name another")
        mine = sum(other.owner == key.owner for other in self._jobs)
        if mine >= self._limits.jobs_owner_max:
            raise Unavailable(
                f"{mine} of your answers are open, the limit is {self._limits.jobs_owner_max}: "
                "try again when one has ended"
            )
        if len(self._jobs) >= self._limits.jobs_max:
            raise Unavailable(
                f"{len(self._jobs)} answers are open, the limit is {self._limits.jobs_max}: "
                "try again when one has ended"
            )

    def check_settlement(self) -> None:
        """Raises Unavailable when full or closed."""
        self._check_open()
        if len(self._settlements) >= self._limits.settles_max:
            raise Unavailable(
                f"{len(self._settlements)} settlements wait, the limit is "
                f"{self._limits.settles_max}: the next turn will do their work"
            )

    @contextmanager
    def page_ask(self, pages: int) -> Iterator[None]:
        """Inside, a question after so many pages is answered: each is read and hashed.

        Raises LimitExceeded for none or too many, Unavailable when full or closed.
        """
        self._check_open()
        if not 1 <= pages <= self._limits.pages_max:
            raise LimitExceeded(
                f"{pages} pages are asked for: 1 to {self._limits.pages_max} are allowed at once"
            )
        if self._page_asks >= self._limits.page_asks_max:
            raise Unavailable(
                f"{self._page_asks} questions after pages are being answered, the limit is "
                f"{self._limits.page_asks_max}: try again"
            )
        self._page_asks += 1
        try:
            yield
        finally:
            self._page_asks -= 1

    def add(self, work: Job | Settlement) -> None:
        """The work is open. Call the check before."""
        if isinstance(work, Settlement):
            self._settlements.add(work)
        else:
            self._jobs[work.key] = work

    def remove(self, work: Job | Settlement) -> None:
        """The work has ended."""
        if isinstance(work, Settlement):
            self._settlements.discard(work)
        elif self._jobs.get(work.key) is work:
            del self._jobs[work.key]
            self._change.set()

    def cancel(self, key: JobKey) -> bool:
        """Mark the job as cancelled; whether it is open. One that is not leaves a tombstone."""
        job = self._jobs.get(key)
        if job is None:
            self._bury(key)
            return False
        job.cancelled = True
        return True

    def take_tombstone(self, key: JobKey) -> bool:
        """Whether the job was cancelled before it came; it is told once."""
        self._expire()
        return self._tombstones.pop(key, None) is not None

    def _bury(self, key: JobKey) -> None:
        self._expire()
        per_owner: Counter[Owner] = Counter(other.owner for other in self._tombstones)
        if per_owner[key.owner] >= self._limits.tombstones_max:
            oldest = next(other for other in self._tombstones if other.owner == key.owner)
            del self._tombstones[oldest]
        self._tombstones.pop(key, None)
        self._tombstones[key] = self._clock.steady_ns() + self._limits.tombstone_ns

    def _expire(self) -> None:
        now = self._clock.steady_ns()
        while self._tombstones:
            key, expires_ns = next(iter(self._tombstones.items()))
            if expires_ns > now:
                return
            del self._tombstones[key]

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the worker is stopping: try again when it has started")
