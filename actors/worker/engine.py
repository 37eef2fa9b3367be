"""The engine: one thread that owns the back end and does one unit of work at a time.

`step` does the next unit: a chunk of one prompt's prefill, a round of decode, the export of a
page, or a chunk of a settlement; the first two by the rule of `fairness`, the others only when
there is nothing to prefill (a page) or nothing else at all (a settlement). So a prompt that
arrives in the middle of a settlement waits for at most its current chunk, and finds on the stream
whatever was advanced until then: a settlement leases nothing between two chunks.

Before every unit, jobs that were cancelled or ran out of time are ended and waiting ones get a
stream. A failure is the failure of one job: its stream is cleared, the loop goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from actors.ports import Clock
from actors.worker.answer import Finish
from actors.worker.backend import Backend, Logits
from actors.worker.exports import Exports
from actors.worker.fairness import Turns, groups
from actors.worker.jobs import (
    DigestKnown,
    Forgotten,
    Job,
    Oblivion,
    Settled,
    Settlement,
    Withdrawal,
    Withdrawn,
)
from actors.worker.receipts import TIERS, block_receipts
from actors.worker.seats import Seats
from actors.worker.tiers import Tiers
from protocol.errors import HuginnError, StoreFault, WorkerFault
from protocol.ids import PageId, ProfileId, StateId
from protocol.messages.worker import Item, Receipt

log = logging.getLogger("huginn.worker")


class Engine:
    """Everything but `submit` and the counters is for one thread.

    Counters only grow: `prefilled_tokens` fed by the schedule, `reused_tokens` not fed because
    they were there, `decoded_tokens` generated, `jobs_failed`, `busy_ns`. `streams_busy`,
    `resident_tokens` and `stream_tokens`, which are those by stream, are as of the last step.
    `flush` sends on what jobs were posted.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        profile: ProfileId,
        *,
        reproducible: bool,
        tiers: Tiers | None = None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend = backend
        self._flush = flush
        self._clock = clock
        self._profile = profile
        self._reproducible = reproducible
        self._seats = Seats(backend, profile, tiers)
        self.streams = self._seats.streams
        self.exports: Exports = self._seats.exports
        self._turns = Turns()
        self._inbox: deque[Job | Settlement | Withdrawal | Oblivion] = deque()
        self._waiting: deque[Job] = deque()
        self._prefilling: deque[Job] = deque()
        self._decoding: list[Job] = []
        self._settling: deque[Settlement] = deque()
        self.prefilled_tokens = 0
        self.reused_tokens = 0
        self.decoded_tokens = 0
        self.jobs_failed = 0
        self.busy_ns = 0
        self.streams_busy = 0
        self.resident_tokens = 0
        self.stream_tokens = [0] * len(self.streams)

    @property
    def waiting(self) -> int:
        """Jobs without a stream."""
        return len(self._waiting) + len(self._inbox)

    @property
    def running(self) -> int:
        """Jobs with a stream."""
        return len(self._prefilling) + len(self._decoding)

    def submit(self, work: Job | Settlement | Withdrawal | Oblivion) -> None:
        """Take in work; any thread may call. The engine posts its end, whatever that is."""
        self._inbox.append(work)

    def step(self) -> bool:
        """Do the next unit of work; False if there is none until more is submitted."""
        began_ns = self._clock.steady_ns()
        more = self._unit()
        if more:
            self.busy_ns += self._clock.steady_ns() - began_ns
        self.streams_busy = self.streams.leased
        self.stream_tokens = [stream.tokens for stream in self.streams]
        self.resident_tokens = sum(self.stream_tokens)
        self._flush()
        return more

    def _unit(self) -> bool:
        self._receive()
        self._reap()
        self._admit()
        unit = self._turns.choose(prefill=bool(self._prefilling), decode=bool(self._decoding))
        if unit == "prefill":
            self._prefill_chunk(self._prefilling[0])
        elif unit == "decode":
            self._decode_round()
            if not self._prefilling:
                self.exports.step()
        elif not self.exports.step():
            return self._settle_chunk() or bool(self._inbox)
        return True

    def fail_all(self, error: HuginnError) -> None:
        """End every job with `error`, because what they share can no longer be trusted."""
        self._receive()
        for job in [*self._waiting, *self._prefilling, *self._decoding]:
            self._fail(job, error)
        while self._settling:
            self._settling.popleft().post(error)
        self._seats.clear_all()
        self._flush()

    # -- jobs come and go --------------------------------------------------------------------

    def _receive(self) -> None:
        while self._inbox:
            work = self._inbox.popleft()
            match work:
                case Settlement():
                    self._settling.append(work)
                case Withdrawal():
                    self._withdraw(work)
                case Oblivion():
                    self._forget_domains(work)
                case _:
                    self._waiting.append(work)

    def _withdraw(self, withdrawal: Withdrawal) -> None:
        """Nothing is public any more, for what is here already; what comes later knows better."""
        for job in (*self._waiting, *self._prefilling, *self._decoding):
            job.public = 0
        for settlement in self._settling:
            settlement.public = 0
        try:
            self._seats.withdraw()
        except Exception as error:
            log.exception("what was public could not be deleted")
            fault = StoreFault(f"public states could not be deleted: {error}")
            withdrawal.post(error if isinstance(error, StoreFault) else fault)
        else:
            withdrawal.post(Withdrawn())

    def _forget_domains(self, oblivion: Oblivion) -> None:
        """Jobs of these domains end here, and what they were computed on goes."""
        gone = oblivion.domains
        for job in [*self._waiting, *self._prefilling, *self._decoding]:
            if job.domain in gone:
                self._end(job, "cancelled")
        for settlement in [s for s in self._settling if s.domain in gone]:
            self._settling.remove(settlement)
            settlement.post(Settled(complete=False))
        try:
            self._seats.forget(gone)
        except Exception as error:
            log.exception("what was computed could not be erased")
            fault = StoreFault(f"prefix states could not be erased: {error}")
            oblivion.post(error if isinstance(error, StoreFault) else fault)
        else:
            oblivion.post(Forgotten())

    def _reap(self) -> None:
        """End what was cancelled or ran out of time."""
        now = self._clock.steady_ns()
        for job in [*self._waiting, *self._prefilling, *self._decoding]:
            if job.cancelled:
                self._end(job, "cancelled")
            elif now >= job.deadline_ns:
                self._end(job, "time")
        for settlement in [s for s in self._settling if s.cancelled or now >= s.deadline_ns]:
            self._settling.remove(settlement)
            settlement.post(Settled(complete=False))

    def _admit(self) -> None:
        """Give streams to waiting jobs, in the order in which they came."""
        while self._waiting:
            job = self._waiting[0]
            try:
                # The last advance is always fed anew: only feeding gives logits.
                seat = self._seats.take(job.domain, job.prompt.chains[:-1], job.public)
            except Exception as error:
                self._fail(job, error)
                continue
            if seat is None:
                return
            self._waiting.popleft()
            self._prefilling.append(job)
            job.stream, job.next_advance, job.reused_tokens, job.found = seat
            job.started_ns = self._clock.steady_ns()
            self.reused_tokens += seat.tokens
            job.post(Item(kind="prefill", done=seat.tokens, total=job.prompt.tokens))

    def _end(self, job: Job, finish: Finish, item: Item | None = None) -> None:
        """The job is over: give back its stream, post the rest and the end."""
        if job in self._decoding and item is None:
            item = job.answer.rest()
        self._forget(job)
        kept = job.stream >= 0 and self._seats.leave(job.stream)
        if item is not None:
            job.post(item)
        receipt = self._receipt(job, finish) if job.prefilled else None
        job.post(Item(kind="end", finish=finish, receipt=receipt))
        if receipt is None:
            return
        then = partial(self._post_digest, job)
        if kept:
            self.exports.watch(job.stream, len(job.prompt.advances), then)
        else:
            then(None)

    def _fail(self, job: Job, error: Exception) -> None:
        """The job is over, by a fault: its stream is cleared."""
        self.jobs_failed += 1
        self._forget(job)
        if job.stream >= 0:
            self._seats.clear(job.stream)
        job.post(_fault(error, f"job {job.key.response}"))

    def _forget(self, job: Job) -> None:
        for queue in (self._waiting, self._prefilling, self._decoding):
            if job in queue:
                queue.remove(job)

    def _receipt(self, job: Job, finish: Finish) -> Receipt:
        reused, prompt = job.reused_tokens, job.prompt
        return Receipt(
            response=job.key.response,
            profile=self._profile,
            prompt_tokens=prompt.tokens,
            reused_tokens=reused,
            prefilled_tokens=prompt.tokens - reused,
            completion_tokens=job.answer.tokens,
            tiers={**dict.fromkeys(TIERS, 0), **job.found.tier_to_tokens},
            pages_verified=job.found.pages_verified,
            pages_refused=list(job.found.pages_refused),
            blocks=block_receipts(prompt.segments, reused),
            advances=job.advances_issued,
            queued_ns=job.started_ns - job.queued_ns,
            ttft_ns=job.first_ns - job.queued_ns,
            total_ns=self._clock.steady_ns() - job.queued_ns,
            finish=finish,
            seed=job.answer.seed,
            reproducible=self._reproducible,
            context=job.context,
            public_tokens=prompt.public_tokens or None,
        )

    # -- units of work -----------------------------------------------------------------------

    def _prefill_chunk(self, job: Job) -> None:
        """Feed the job's next advance, and let the next prompt have its turn."""
        advance = job.prompt.advances[job.next_advance]
        last = job.next_advance + 1 == len(job.prompt.advances)
        self._turns.prefilled(len(advance.ids))
        try:
            chain = job.prompt.chains[job.next_advance]
            public = job.next_advance < job.public
            logits = self._seats.feed(job.stream, advance, chain, logits=last, public=public)
            self.prefilled_tokens += len(advance.ids)
            job.next_advance += 1
            job.advances_issued += 1
            self._prefilling.rotate(-1)
            if logits is None:
                job.post(Item(kind="prefill", done=advance.stop, total=job.prompt.tokens))
                return
            self._prefilling.remove(job)
            self._decoding.append(job)
            self._take(job, logits)
        except Exception as error:
            self._fail(job, error)

    def _decode_round(self) -> None:
        """Give every running answer one token."""
        running = list(self._decoding)
        for part in groups(len(running), self._backend.group_max):
            # No answer waits for the next group's tokens.
            self._flush()
            self._decode(running[part])
        self._turns.decoded()

    def _decode(self, jobs: list[Job]) -> None:
        try:
            found = self._seats.decode([(job.stream, job.answer.pending) for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                self._fail(jobs[0], error)
            else:
                self._decode_apart(jobs, error)
            return
        for job, logits in zip(jobs, found, strict=True):
            job.decoded_tokens += 1
            try:
                self._take(job, logits)
            except Exception as error:
                self._fail(job, error)

    def _decode_apart(self, jobs: Iterable[Job], error: Exception) -> None:
        """A group failed: find out whose fault it is, one by one."""
        log.warning("a decode group failed and is retried one by one: %s", error)
        for job in jobs:
            try:
                self._seats.restore(job.stream, job.prompt.tokens + job.decoded_tokens)
            except Exception as fault:
                self._fail(job, fault)
            else:
                self._decode([job])

    def _take(self, job: Job, logits: Logits) -> None:
        """The next token of an answer; ends the job with its answer."""
        before = job.answer.tokens
        item, finish = job.answer.take(logits)
        self.decoded_tokens += job.answer.tokens - before
        if not job.first_ns:
            job.first_ns = self._clock.steady_ns()
        if finish is not None:
            self._end(job, finish, item)
        elif item is not None:
            job.post(item)

    def _settle_chunk(self) -> bool:
        """One step of the oldest settlement; whether there was one."""
        if not self._settling:
            return False
        settlement = self._settling[0]
        prompt = settlement.prompt
        try:
            public = settlement.public
            choice = self._seats.take_spare(settlement.domain, prompt.chains, public)
            if choice is None:
                self._settling.popleft()
                settlement.post(Settled(complete=False))
            elif choice.keep == len(prompt.chains):
                self._settling.popleft()
                then = partial(self._post_settled, settlement, choice.stream)
                self.exports.watch(choice.stream, choice.keep, then)
            else:
                advance, chain = prompt.advances[choice.keep], prompt.chains[choice.keep]
                public_now = choice.keep < public
                self._seats.feed(choice.stream, advance, chain, logits=False, public=public_now)
                self.prefilled_tokens += len(advance.ids)
                settlement.fed.append(choice.keep)
        except Exception as error:
            self.jobs_failed += 1
            if settlement in self._settling:
                self._settling.remove(settlement)
            settlement.post(_fault(error, "a settlement"))
        return True

    # -- what is known afterwards ------------------------------------------------------------

    def _post_digest(self, job: Job, digest: StateId | None) -> None:
        pages = () if digest is None else self._pages(job.stream, len(job.prompt.advances))
        job.post(DigestKnown(digest, pages))

    def _post_settled(self, settlement: Settlement, stream: int, digest: StateId | None) -> None:
        pages = () if digest is None else self._pages(stream, len(settlement.prompt.advances))
        settlement.post(Settled(complete=True, pages=pages))

    def _pages(self, stream: int, count: int) -> tuple[PageId, ...]:
        """The pages of the stream's first `count` boundaries, all of which are digested."""
        pages = (boundary.page for boundary in self.streams[stream].boundaries[:count])
        return tuple(page for page in pages if page is not None)


def _fault(error: Exception, what: str) -> HuginnError:
    """`error` as `what` is told it: one that nobody foresaw is logged, and named alone."""
    if isinstance(error, HuginnError):
        return error
    log.error("%s failed", what, exc_info=error)
    return WorkerFault(f"the worker failed on this request: {type(error).__name__}")
