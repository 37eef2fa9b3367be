"""The engine stepped by hand: whose turn it is, and what happens when something breaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.answer import Answer
from actors.worker.drivers import step
from actors.worker.engine import Engine
from actors.worker.fairness import TOKENS_PER_ROUND
from actors.worker.jobs import (
    DigestKnown,
    Event,
    Job,
    JobKey,
    Owner,
    Settled,
    Settlement,
    Withdrawal,
    Withdrawn,
)
from actors.worker.prompt import PromptReader
from actors.worker.tiers import Tiers
from protocol.errors import HuginnError, StoreFault, WorkerFault
from protocol.messages.worker import Item
from protocol.publication import PUBLIC
from protocol.tokens import pack
from store.pages.memory import MemoryPageTier
from tests.fake_backend import FakeBackend
from tests.worker_rooms import OPENER, PROFILE, HandClock, Talk, asked, text_ids

CHUNK = 64
HOUR_NS = 3600 * 10**9


class Stand:
    """An engine, its fake back end, and what was posted, by job name."""

    def __init__(self, tiers: Tiers | None = None, **backend: Any) -> None:
        self.backend = FakeBackend(**{"chunk_tokens": CHUNK, **backend})
        self.clock = HandClock()
        self.engine = Engine(self.backend, self.clock, PROFILE, reproducible=True, tiers=tiers)
        self.posted: dict[str, list[Event]] = {}
        self.reader = PromptReader(
            PROFILE, self.backend.tokenizer, context_tokens=512, chunk_tokens=CHUNK
        )

    def job(
        self,
        name: str,
        size: int,
        *,
        tokens_max: int = 8,
        domain: str = "alice",
        talk: Talk | None = None,
        public: int = 0,
    ) -> Job:
        """The first `public` segments of `talk` are public."""
        talk = talk or Talk().add("user", text_ids(name + "x" * size))
        ask = asked(talk.segments, response=name, tokens_max=tokens_max, stop_ids=[])
        prompt = self.reader.read(talk.segments, pack(OPENER), answer_tokens=1, public=public)
        answer = Answer(ask, self.backend.tokenizer, prompt=prompt.ids, context_tokens=512, seed=1)
        made = Job(
            key=JobKey(Owner(domain, b"p"), name),
            prompt=prompt,
            answer=answer,
            context=None,
            queued_ns=self.clock.now_ns,
            deadline_ns=self.clock.now_ns + HOUR_NS,
            post=self.posted.setdefault(name, []).append,
        )
        self.engine.submit(made)
        return made

    def settle(
        self, name: str, size: int, *, talk: Talk | None = None, public: int = 0
    ) -> Settlement:
        talk = talk or Talk().add("user", text_ids(name + "x" * size))
        made = Settlement(
            key=JobKey(Owner("alice", b"p"), name),
            prompt=self.reader.read(talk.segments, b"", answer_tokens=0, public=public),
            deadline_ns=self.clock.now_ns + HOUR_NS,
            post=self.posted.setdefault(name, []).append,
        )
        self.engine.submit(made)
        return made

    def run(self, steps_max: int = 10_000) -> None:
        for _ in range(steps_max):
            if not step(self.engine):
                return
        raise AssertionError("the engine never comes to rest")

    def end(self, name: str) -> Item | HuginnError:
        ends = [
            event
            for event in self.posted[name]
            if isinstance(event, HuginnError) or (isinstance(event, Item) and event.kind == "end")
        ]
        assert len(ends) == 1, "a job ends once"
        return ends[0]


@pytest.mark.req("KV-12")
@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=9),
    tokens=st.integers(1, 40),
    gaps=st.lists(st.integers(0, 30), min_size=9, max_size=9),
)
def test_the_fairness_bounds_hold_in_what_is_fed(
    sizes: list[int], tokens: int, gaps: list[int]
) -> None:
    stand = Stand()
    for number, size in enumerate(sizes):
        stand.job(str(number), size, tokens_max=tokens)
        for _ in range(gaps[number]):
            _observed_step(stand)
    while _observed_step(stand):
        pass
    for number in range(len(sizes)):
        end = stand.end(str(number))
        assert isinstance(end, Item)
        assert end.receipt is not None
        assert end.receipt.completion_tokens == tokens
    assert stand.engine.running == stand.engine.waiting == 0


def _observed_step(stand: Stand) -> bool:
    """One step, after which the bounds are checked on the trace of the whole run."""
    engine = stand.engine
    before = len(stand.backend.fed)
    decoding = {job.stream for job in engine._decoding}
    waiting_prefill = bool(engine._prefilling) or bool(engine.waiting)
    more = step(engine)
    fed = [entry for entry in stand.backend.fed[before:] if entry[0] != "truncate"]
    kinds = {kind for kind, _, _ in fed}
    assert len(kinds) <= 1, "one unit at a time"
    trace = stand.__dict__.setdefault("trace", {"chunks": 0, "rounds": 0})
    if kinds == {"advance"}:
        assert len(fed) == 1
        trace["chunks"] = trace["chunks"] + 1 if decoding else 0
        trace["rounds"] = 0
    elif kinds == {"decode"}:
        # A round gives every running answer exactly one token.
        assert sorted(stream for _, stream, _ in fed) == sorted(decoding)
        trace["chunks"] = 0
        trace["rounds"] = trace["rounds"] + 1 if waiting_prefill and engine._prefilling else 0
    assert trace["chunks"] <= 1
    assert trace["rounds"] <= max(1, CHUNK // TOKENS_PER_ROUND)
    return more


def test_prompts_take_turns_so_a_short_one_is_not_held_up() -> None:
    stand = Stand()
    stand.job("long", 400)
    stand.job("short", 10)
    stand.run()
    streams = [stream for kind, stream, _ in stand.backend.fed if kind == "advance"]
    assert streams[:2] == [0, 1]


def test_jobs_get_streams_in_the_order_in_which_they_came() -> None:
    stand = Stand(streams=1)
    jobs = [stand.job(f"{n}", 30, domain="ab"[n % 2]) for n in range(5)]
    stand.run()
    started = [job.started_ns for job in jobs]
    assert started == sorted(started)
    fed = [ids[3] for kind, _, ids in stand.backend.fed if kind == "advance" and len(ids) > 30]  # type: ignore[index]
    assert fed == [text_ids(str(n))[0] for n in range(5)]


def test_pages_wait_while_a_prompt_does() -> None:
    """With a wide window, no page is exported between a job's arrival and its first token, though
    another answer that is decoded owes some."""
    stand = Stand(window_tokens=512)
    exports = 0

    def counted(*args: int) -> Any:
        nonlocal exports
        exports += 1
        return FakeBackend.export(stand.backend, *args)

    stand.backend.export = counted  # type: ignore[method-assign]
    stand.job("a", 200, tokens_max=100)
    while not stand.engine._decoding:
        step(stand.engine)
    stand.job("b", 300)
    while not any(isinstance(e, Item) and e.kind == "delta" for e in stand.posted["b"]):
        step(stand.engine)
        assert exports == 0
    # Then they are, one to a round, before the long answer has ended.
    while len(stand.engine._decoding) == 2:
        step(stand.engine)
    assert 0 < exports <= 9
    stand.run()
    assert exports == 4 + 5
    assert all(isinstance(stand.posted[name][-1], DigestKnown) for name in "ab")


def test_the_window_forces_pages_out_in_time() -> None:
    stand = Stand(window_tokens=64)
    stand.job("a", 300, tokens_max=100)
    stand.run()
    last = stand.posted["a"][-1]
    assert isinstance(last, DigestKnown)
    assert last.digest is not None


def test_an_export_that_fails_costs_the_digest_alone() -> None:
    stand = Stand(window_tokens=32)
    stand.job("a", 300)
    stand.run()
    end = stand.end("a")
    assert isinstance(end, Item)
    assert stand.posted["a"][-1] == DigestKnown(None)
    assert stand.engine.jobs_failed == 0


def test_what_was_posted_comes_in_order() -> None:
    stand = Stand()
    stand.job("a", 100, tokens_max=20)
    stand.run()
    kinds = [e.kind if isinstance(e, Item) else type(e).__name__ for e in stand.posted["a"]]
    order = ["prefill", "delta", "end", "DigestKnown"]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count("end") == kinds.count("DigestKnown") == 1


def test_cancelled_jobs_end_in_every_state() -> None:
    stand = Stand(streams=2)
    jobs = [stand.job(f"{n}", 100 * n, tokens_max=50) for n in range(4)]
    while not stand.engine._decoding:
        step(stand.engine)
    for job in jobs:
        job.cancelled = True
    stand.run()
    assert [stand.end(f"{n}").finish for n in range(4)] == ["cancelled"] * 4  # type: ignore[union-attr]
    assert stand.engine.streams_busy == 0
    for stream in stand.engine.streams:
        assert stand.backend.length(stream.index) == stream.tokens


def test_a_stream_that_cannot_be_emptied_is_retired_and_the_others_serve() -> None:
    stand = Stand(streams=2)
    real = stand.backend.truncate

    def refuse(stream: int, tokens: int) -> None:
        if stream == 0:
            raise WorkerFault("no")
        real(stream, tokens)

    stand.job("a", 100)
    step(stand.engine)
    stand.backend.truncate = refuse  # type: ignore[method-assign]
    stand.run()
    assert isinstance(stand.end("a"), Item)
    for name in ("b", "c"):
        stand.job(name, 100)
        stand.run()
        assert isinstance(stand.end(name), Item)
    assert stand.engine.streams[0].retired


def test_with_every_stream_retired_jobs_fail_with_a_reason() -> None:
    stand = Stand(streams=1)

    def refuse(stream: int, tokens: int) -> None:
        raise WorkerFault("no")

    stand.backend.truncate = refuse  # type: ignore[method-assign]
    stand.job("a", 10)
    stand.run()
    stand.job("b", 10)
    stand.run()
    end = stand.end("b")
    assert isinstance(end, WorkerFault)
    assert "restart" in str(end)


def test_a_fault_of_the_engine_fails_every_job_and_it_goes_on() -> None:
    stand = Stand()
    stand.job("a", 100)
    stand.settle("s", 10)
    step(stand.engine)
    stand.engine._turns.choose = None  # type: ignore[assignment]
    assert step(stand.engine)
    assert isinstance(stand.end("a"), WorkerFault)
    assert isinstance(stand.posted["s"][-1], WorkerFault)
    del stand.engine._turns.choose
    stand.job("b", 100)
    stand.run()
    assert isinstance(stand.end("b"), Item)


def test_a_settlement_that_is_resident_already_feeds_nothing() -> None:
    stand = Stand()
    first = stand.settle("s", 100)
    stand.run()
    (settled,) = stand.posted["s"]
    assert isinstance(settled, Settled)
    assert settled.complete
    # One page for each advance, and the advances that were fed for it, for the evidence.
    assert len(settled.pages) == len(first.prompt.advances) == len(stand.backend.fed)
    assert list(first.fed) == list(range(len(first.prompt.advances)))
    fed = len(stand.backend.fed)
    again = stand.settle("s", 100)
    stand.run()
    assert stand.posted["s"][-1] == settled
    assert len(stand.backend.fed) == fed
    assert again.fed == []
    again.cancelled = True


def test_a_settlement_that_fails_is_an_error_and_leaves_nothing() -> None:
    stand = Stand()
    stand.settle("s", 100)
    stand.backend.fault = "keep"
    stand.run()
    assert isinstance(stand.posted["s"][-1], WorkerFault)
    assert stand.engine.resident_tokens == 0


# -- what is public ----------------------------------------------------------------------------

SHARED = Talk().add("user", text_ids("s" * 300))


@pytest.mark.req("AUT-5")
def test_a_public_beginning_is_kept_for_all_and_the_rest_for_its_domain() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    job = stand.job("a", 0, talk=SHARED.add("user", text_ids("mine")), public=1)
    stand.run()
    chains = job.prompt.chains
    assert job.prompt.public == len(chains) - 1 == 5
    assert [info.page.chain for info in host.find(PUBLIC, chains)] == list(chains[:-1])
    assert [info.page.chain for info in host.find("alice", chains)] == [chains[-1]]
    for public, tokens in [(1, job.prompt.public_tokens), (0, 0)]:
        other = SHARED.add("user", text_ids(f"his {public}"))
        stand.job(f"b{public}", 0, talk=other, public=public, domain=f"bob {public}")
        stand.run()
        end = stand.end(f"b{public}")
        assert isinstance(end, Item)
        assert end.receipt is not None
        assert end.receipt.reused_tokens == tokens
        assert end.receipt.public_tokens == (tokens or None)


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("steps", range(8))
def test_a_withdrawal_between_two_chunks_makes_the_rest_private(steps: int) -> None:
    """At whatever point it comes, nothing is kept for all afterwards: not what is being fed, not
    what waits, not what settles."""
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1), streams=2)
    jobs = [
        stand.job(name, 0, talk=SHARED.add("user", text_ids(name)), public=1, domain=name)
        for name in "abc"
    ]
    stand.settle("s", 0, talk=SHARED.add("user", text_ids("later")), public=1)
    for _ in range(steps):
        step(stand.engine)
    posted: list[Event] = []
    stand.engine.submit(Withdrawal(posted.append))
    step(stand.engine)
    assert posted == [Withdrawn()]
    stand.run()
    assert not any(
        boundary.public for stream in stand.engine.streams for boundary in stream.boundaries
    )
    for job in jobs:
        assert host.find(PUBLIC, job.prompt.chains) == []
        assert isinstance(stand.end(job.key.response), Item)
    stand.job("d", 0, talk=SHARED.add("user", text_ids("d")), domain="dora")
    stand.run()
    end = stand.end("d")
    assert isinstance(end, Item)
    assert end.receipt is not None
    assert end.receipt.reused_tokens == 0


@pytest.mark.req("AUT-5")
def test_a_settlement_publishes_what_is_public_of_it() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    settlement = stand.settle("s", 0, talk=SHARED.add("user", text_ids("x")), public=1)
    stand.run()
    assert len(host.find(PUBLIC, settlement.prompt.chains)) == settlement.prompt.public == 5


def test_a_withdrawal_that_cannot_delete_says_so() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host))
    host.close()
    posted: list[Event] = []
    stand.engine.submit(Withdrawal(posted.append))
    stand.run()
    assert [type(event) for event in posted] == [StoreFault]


def test_what_was_posted_is_flushed_once_a_unit_and_between_two_groups() -> None:
    stand = Stand(group_max=1)
    flushed: list[tuple[int, dict[str, int]]] = []

    def flush() -> None:
        counts = {name: len(events) for name, events in stand.posted.items()}
        flushed.append((len(stand.backend.fed), counts))

    stand.engine._flush = flush
    for name in ("one", "two"):
        stand.job(name, 10)
    while len(stand.engine._decoding) != 2:
        assert stand.engine.step()
    flushed.clear()
    before = len(stand.backend.fed)
    assert stand.engine.step()
    fed, counts = zip(*flushed, strict=True)
    assert fed == (before, before + 1, before + 2), "before each group, and after the last one"
    # What the first group said was sent before the second one computed.
    assert counts[1]["one"] == counts[0]["one"] + 1
    assert counts[1]["two"] == counts[0]["two"]
    flushed.clear()
    stand.engine.fail_all(WorkerFault("of the test"))
    assert flushed
    assert all(isinstance(stand.end(name), WorkerFault) for name in ("one", "two"))


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("steps", range(4))
def test_a_withdrawal_in_the_middle_of_a_settlement_makes_the_rest_private(steps: int) -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    settlement = stand.settle("s", 0, talk=SHARED.add("user", text_ids("x")), public=1)
    for _ in range(steps):
        step(stand.engine)
    stand.engine.submit(Withdrawal(lambda event: None))
    stand.run()
    assert host.find(PUBLIC, settlement.prompt.chains) == []
    assert stand.engine.streams[0].tokens == settlement.prompt.tokens
