"""The worker room: one model under one profile, its prefix states, and answers.

Asked for an answer, it refuses what it can refuse at once, queues the rest, and streams what the
engine posts. The computation-sharing domain of everything comes from the caller's handle and from
nowhere else. What a caller without `telemetry` is told is the same whatever was warm: no progress
(it begins at what was found), and a receipt without reuse, times and state (I-NO-PRESENCE). A
prompt whose first blocks are public touches the public domain as well: then `telemetry` is needed
there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from msgspec import structs

from actors.reporting import EvidenceQueue
from actors.room import Call, World
from actors.worker.admission import Admission
from actors.worker.answer import Answer
from actors.worker.backend import Backend, check_backend
from actors.worker.drivers import Driver, ThreadDriver
from actors.worker.engine import Engine
from actors.worker.figures import figures
from actors.worker.jobs import (
    DigestKnown,
    Event,
    Job,
    JobKey,
    Oblivion,
    Owner,
    Settled,
    Settlement,
    Withdrawal,
)
from actors.worker.ledgers import LedgerOperations, LedgerPorts, Ledgers
from actors.worker.limits import WorkerLimits
from actors.worker.outbox import Outbox
from actors.worker.posts import Posts
from actors.worker.prompt import PromptReader
from actors.worker.publications import PublicBlocks, PublicTable
from actors.worker.receipts import Receipts, ReceiptTable, redacted
from actors.worker.testimony import COMPLETE, Testimony
from actors.worker.tiers import Tiers
from protocol.errors import (
    ContentError,
    HuginnError,
    LimitExceeded,
    NotVisible,
    Unavailable,
)
from protocol.ids import ProfileId
from protocol.messages import Empty, Operation
from protocol.messages.assembler import Segment
from protocol.messages.erasure import Erase
from protocol.messages.ropes import Publications
from protocol.messages.worker import (
    OPERATIONS,
    AskPages,
    AskReceipt,
    Cancel,
    Generate,
    HeldPages,
    Item,
    ModelInfo,
    Receipt,
    Settle,
    Stats,
)
from protocol.publication import PUBLIC, check_prefix
from protocol.resource import Resource, ResourceKind, Right
from store.tables import Tables

RESPONSE_CHARS_MAX = 255


class WorkerRoom(LedgerOperations):
    """Owns `backend`, `tiers` and `tables` (in which the others lie) from now on. `process` is what
    `stats` says about the operating system's process, `engine_build` what evidence says about the
    code that computes. Raises ProfileFault for a back end that cannot follow the schedule."""

    operations: ClassVar[dict[str, Operation]] = OPERATIONS

    def __init__(
        self,
        world: World,
        backend: Backend,
        profile_id: ProfileId,
        model_info: ModelInfo,
        receipts_table: ReceiptTable,
        *,
        profile_name: str,
        public_table: PublicTable | None = None,
        ledgers: LedgerPorts | None = None,
        tiers: Tiers | None = None,
        limits: WorkerLimits | None = None,
        name: str = "worker",
        process: int = 0,
        engine_build: str = "huginn",
        driver: Driver | None = None,
        tables: Tables | None = None,
        blocking: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        super().__init__(name, world)
        self._limits = limits or WorkerLimits()
        check_backend(backend, self._limits.chunk_tokens)
        self._backend = backend
        self._profile = profile_id
        self._resource = Resource(kind=ResourceKind.PROFILE, name=profile_name)
        self._info = model_info
        self._process = process
        self._reader = PromptReader(
            profile_id,
            backend.tokenizer,
            context_tokens=backend.context_tokens,
            chunk_tokens=self._limits.chunk_tokens,
        )
        self._admission = Admission(world.clock, self._limits)
        self._blocking = blocking
        self._tables = tables
        self._receipts = Receipts(receipts_table, self._limits.receipts_kept, blocking=blocking)
        self._tiers = tiers
        self._public = PublicBlocks(
            public_table,
            lambda: self.ask_as_self("ropes", "publications", Empty(), Publications),
            self._withdraw,
            blocking=blocking,
        )
        self._testimony = Testimony(EvidenceQueue(self, engine_build), profile_id, self._limits)
        self._posts = Posts()
        self._engine = Engine(
            backend,
            world.clock,
            profile_id,
            reproducible=self._limits.reproducible,
            tiers=tiers,
            flush=self._posts.flush,
        )
        used = (profile_id, self._engine, tiers, world.clock)
        self._ledgers = Ledgers(ledgers, *used, blocking=blocking)
        self._driver = driver or ThreadDriver()
        self._driver.start(self._engine)
        self._drained = False

    async def start(self) -> None:
        await super().start()
        await self._public.known()

    # -- operations --------------------------------------------------------------------------

    async def on_generate(self, call: Call, ask: Generate) -> AsyncGenerator[Item, None]:
        """The answer, item by item. Closing the stream cancels the job.

        What a handle does not reach is not computed: CapabilityError, step `scope`. What is said to
        be public and was not stated so by the assembler is refused: AuthorityError, step `public`.
        """
        call.handle.require(Right.GENERATE, self._resource)
        key = self._key(call, ask.response)
        if self._admission.take_tombstone(key):
            yield Item(kind="end", finish="cancelled")
            return
        if ask.public is not None:
            await self._public.known()
        job, outbox = self._open(key, ask)
        telemetry = _sees(call, touched=job.prompt.public > 0)
        try:
            while True:
                event = await outbox.get()
                if isinstance(event, HuginnError):
                    raise event
                if telemetry or event.kind == "delta":
                    yield event
                elif event.kind == "end":
                    receipt = redacted(event.receipt) if event.receipt else None
                    yield structs.replace(event, receipt=receipt)
                if event.kind == "end":
                    return
        finally:
            job.cancelled = True
            self._driver.wake()

    async def on_settle(self, call: Call, ask: Settle) -> Empty:
        """Returns when the segments are resident and their pages digested, or when that was given
        up: a settlement never takes anything from anybody."""
        call.handle.require(Right.ADVANCE, self._resource)
        if ask.public is not None:
            await self._public.known()
        self._admission.check_settlement()
        public = self._public_segments(ask.segments, ask.public)
        over: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        settlement = Settlement(
            key=self._key(call, ask.response),
            prompt=self._reader.read(ask.segments, b"", answer_tokens=0, public=public),
            deadline_ns=self.world.clock.steady_ns() + self._limits.settle_ns_max,
            post=self._posts.poster(lambda event: self._on_settled(settlement, over, event)),
            context=ask.context,
        )
        self._admission.add(settlement)
        self._submit(settlement)
        try:
            event = await over
        finally:
            settlement.cancelled = True
            self._driver.wake()
        if isinstance(event, HuginnError):
            raise event
        return Empty()

    async def on_cancel(self, call: Call, ask: Cancel) -> Empty:
        self._admission.cancel(self._key(call, ask.response))
        self._driver.wake()
        return Empty()

    async def on_receipt(self, call: Call, ask: AskReceipt) -> Receipt:
        """The receipt, in the caller's own domain. NotVisible for any other."""
        key = self._key(call, ask.response)
        receipt = await self._receipts.get(key.owner.domain, ask.response)
        if receipt is None:
            raise NotVisible(f"no receipt of {ask.response!r:.80} is known to you")
        if not _sees(call, touched=receipt.public_tokens is not None):
            return redacted(receipt)
        return receipt

    async def on_pages(self, call: Call, ask: AskPages) -> HeldPages:
        """Whether the tiers hold such pages in the caller's own domain, or in the public one if it
        may know what was reused there."""
        tiers, domains = self._tiers, [call.domain]
        if call.handle.sees(PUBLIC):
            domains.append(PUBLIC)
        with self._admission.page_ask(len(ask.pages)):
            if tiers is None:
                return HeldPages(held=False)
            held = await self._blocking(
                lambda: all(tiers.holds(domains, ask.chain, page) for page in ask.pages)
            )
        return HeldPages(held=bool(held))

    async def on_stats(self, call: Call, ask: Empty) -> Stats:
        self._require_operator(call)
        return figures(self._profile, self._backend, self._engine, self._tiers, self._process)

    async def on_info(self, call: Call, ask: Empty) -> ModelInfo:
        call.handle.require(Right.GENERATE, self._resource)
        return self._info

    async def on_publications(self, call: Call, ask: Empty) -> Empty:
        """From the ropes room: what is public has changed. Answered when nothing of what is not any
        more is used or kept; raises StoreFault if it could not be deleted."""
        if call.handle.audience != self.world.room_to_key.get("ropes"):
            raise ContentError("only the ropes room says what is public")
        await self._public.refresh()
        return Empty()

    async def erase(self, ask: Erase) -> dict[str, int]:
        """Of these domains: streams, pages, the keys of these, receipts, and what was to be told of
        them."""
        await self._carry_out(partial(Oblivion, frozenset(ask.domains)))
        await self._testimony.forget(ask.domains)
        receipts = sum([await self._receipts.forget(domain) for domain in ask.domains])
        await self._ledgers.charges.forget(ask.principals)
        if self._tables is not None:
            await self._blocking(self._tables.scrub)
        return {"receipts": receipts}

    async def drain(self) -> None:
        """Admit nothing more, give running answers `drain_ns`, then end everything and free the
        model. Twice is once."""
        if self._drained:
            return
        self._drained = True
        self._admission.close()
        for settlement in self._admission.settlements:
            settlement.cancelled = True
        self._driver.wake()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._admission.emptied(), self._limits.drain_ns / 1e9)
        await self._driver.stop()
        self._engine.fail_all(Unavailable("the worker stopped before the answer was complete"))
        # What was posted to the loop is taken in before the receipts are flushed.
        await asyncio.sleep(0)
        await self._receipts.flush()
        await self._ledgers.drain()
        await self._testimony.drain()
        if self._tiers is not None:
            await self._blocking(self._tiers.close)
        self._backend.close()
        if self._tables is not None:
            await self._blocking(self._tables.close)

    # -- jobs --------------------------------------------------------------------------------

    def _open(self, key: JobKey, ask: Generate) -> tuple[Job, Outbox]:
        """Refuse the job, or submit it."""
        self._admission.check_job(key)
        if not 1 <= ask.time_ns_max <= self._limits.job_ns_max:
            raise LimitExceeded(
                f"time_ns_max is {ask.time_ns_max}: 1 to {self._limits.job_ns_max} nanoseconds"
            )
        public = self._public_segments(ask.segments, ask.public)
        prompt = self._reader.read(ask.segments, ask.opener, answer_tokens=1, public=public)
        answer = Answer(
            ask,
            self._backend.tokenizer,
            prompt=prompt.ids,
            context_tokens=self._backend.context_tokens,
            seed=self._seed(ask),
        )
        outbox = Outbox()
        now = self.world.clock.steady_ns()
        job = Job(
            key=key,
            prompt=prompt,
            answer=answer,
            context=ask.context,
            queued_ns=now,
            deadline_ns=now + ask.time_ns_max,
            post=self._posts.poster(lambda event: self._on_event(job, outbox, event)),
        )
        self._admission.add(job)
        self._ledgers.admitted(job)
        self._submit(job)
        return job, outbox

    def _submit(self, work: Job | Settlement | Withdrawal | Oblivion) -> None:
        self._engine.submit(work)
        self._driver.wake()

    def _public_segments(self, segments: Sequence[Segment], statement: bytes | None) -> int:
        """How many of the first segments are public now. Never what a caller says: what the
        assembler stated of exactly these tokens, as far as the ropes room says so still."""
        if statement is None:
            return 0
        assembler = self.world.room_to_key.get("assembler", b"")
        stated = check_prefix(statement, assembler, self._resource.name or "", segments)
        return self._public.leading(segment.block for segment in segments[:stated])

    async def _withdraw(self) -> None:
        """Have the engine give up what is public. Raises StoreFault if it could not."""
        if self._drained:
            raise Unavailable("the worker is stopping: it asks what is public when it starts")
        await self._carry_out(Withdrawal)

    async def _carry_out(
        self, work: Callable[[Callable[[Event], None]], Withdrawal | Oblivion]
    ) -> None:
        """Have the engine do `work`; raises what it posts that could not be done."""
        over: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._submit(work(self._posts.poster(over.set_result)))
        event = await asyncio.shield(over)
        if isinstance(event, HuginnError):
            raise event

    def _on_event(self, job: Job, outbox: Outbox, event: Event) -> None:
        match event:
            case Item() | HuginnError():
                if isinstance(event, HuginnError) or event.kind == "end":
                    self._admission.remove(job)
                    self._ledgers.ended(job)
                if isinstance(event, Item) and event.receipt is not None:
                    self._receipts.record(job.domain, event.receipt)
                outbox.put(event)
                if isinstance(event, Item) and event.finish in COMPLETE:
                    self._testimony.answer(job)
            case DigestKnown(digest, pages):
                self._receipts.resolve(job.domain, job.key.response, digest)
                self._testimony.pages(job, pages)

    def _on_settled(
        self, settlement: Settlement, over: asyncio.Future[Event], event: Event
    ) -> None:
        if isinstance(event, (HuginnError, Settled)):
            self._admission.remove(settlement)
            if isinstance(event, Settled):
                self._testimony.pages(settlement, event.pages)
            if not over.done():
                over.set_result(event)

    def _key(self, call: Call, response: str) -> JobKey:
        if not 1 <= len(response) <= RESPONSE_CHARS_MAX:
            raise ContentError(f"a response id has 1 to {RESPONSE_CHARS_MAX} characters")
        if call.domain == PUBLIC:
            # Nobody is enrolled there: what would be kept for it would be kept for all.
            raise ContentError("the public domain is nobody's own")
        return JobKey(Owner(call.domain, call.handle.principal), response)

    def _seed(self, ask: Generate) -> int:
        if ask.sampler.seed is not None:
            return ask.sampler.seed
        return int.from_bytes(self.world.entropy.draw(8), "big") >> 1


def _sees(call: Call, *, touched: bool) -> bool:
    """Whether the caller may know what was reused; `touched`: in the public domain too."""
    return call.has(Right.TELEMETRY) and (not touched or call.handle.sees(PUBLIC))
