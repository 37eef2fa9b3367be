"""Random jobs, cancels, deadlines and faults of the back end: who ends how, and with what.

The oracle is each job by itself on a fresh stand, and these rules, held against every step:

- whoever was cancelled, or is late, when the step begins ends in it, as just that;
- an error ends whom a fault struck, in the step in which it did, and nobody else. A fault strikes
  whoever is fed: the one prompt, the one settlement, the one answer. In a decode of several it
  strikes the one whose stream it emptied, or nobody if it left the streams as they were: the group
  is retried one by one. In a restore it strikes nobody: the prompt is computed;
- all others end with their own whole answer. What was said before any end is how it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.drivers import step
from actors.worker.jobs import DigestKnown, Job, Settled, Settlement
from actors.worker.tiers import Tiers
from protocol.errors import HuginnError, WorkerFault
from protocol.ids import PageId, StateId
from protocol.messages.worker import Item
from protocol.tokens import TokenIds, unpack
from store.pages.memory import MemoryPageTier
from tests.engine_stands import Stand
from tests.page_samples import TestClock
from tests.worker_rooms import SECOND, Talk, text_ids

FAULT_CLASSES = (WorkerFault, ValueError, MemoryError)


class Words(NamedTuple):
    """A conversation: the first turn's size, and how many short turns follow it. Two share what
    they can: the letters are the same."""

    size: int
    turns: int

    @property
    def talk(self) -> Talk:
        talk = Talk().add("user", text_ids("x" * self.size))
        for _ in range(self.turns):
            talk = talk.add("model", text_ids("y" * 6)).add("user", text_ids("z" * 9))
        return talk


class Ask(NamedTuple):
    words: Words
    tokens_max: int
    domain: str
    patience_s: int


class Settle(NamedTuple):
    words: Words
    patience_s: int


class Cancel(NamedTuple):
    """Of those that have not ended, the one of that number, counted round."""

    number: int


class Turn(NamedTuple):
    seconds: int


class Fault(NamedTuple):
    """The next calls of that kind fail, so many of them, one after the other. A decode of one
    answer and that of a group are two kinds."""

    call: Literal["advance", "decode", "group", "restore"]
    kind: Literal["keep", "clear"]
    fault_class: type[Exception]
    calls: int


Deed = Ask | Settle | Cancel | Turn | Fault
# So many steps go by before it.
Planned = tuple[int, Deed]
Work = Job | Settlement

usual = st.sampled_from([Words(1, 2), Words(60, 1), Words(130, 0), Words(130, 1)])
words = st.one_of(usual, usual, st.builds(Words, st.integers(1, 250), st.integers(0, 2)))
patience = st.sampled_from((3600, 3600, 3600, 5, 20))
lengths = st.sampled_from((40, 60, 20, 8, 1))
asks = st.builds(Ask, words, lengths, st.sampled_from(("alice", "bob")), patience)
settles = st.builds(Settle, words, patience)
faults = st.builds(
    Fault,
    st.sampled_from(("group", "decode", "advance", "restore")),
    st.sampled_from(("keep", "clear")),
    st.sampled_from(FAULT_CLASSES),
    st.sampled_from((1, 1, 2, 4)),
)
cancels = st.builds(Cancel, st.integers(0, 9))
turns = st.builds(Turn, st.integers(1, 10))
crowds = st.lists(asks, min_size=4, max_size=6)
deeds = st.tuples(
    st.sampled_from((4, 0, 1, 20)), st.one_of(asks, asks, faults, faults, settles, cancels, turns)
)
plans = st.lists(deeds, min_size=6, max_size=16)


class Shape(NamedTuple):
    """`kept`: with tiers, so that what a stream loses can be restored."""

    streams: int
    group_max: int
    kept: bool

    def __str__(self) -> str:
        return f"{self.streams}-{self.group_max}-{'kept' if self.kept else 'lost'}"


class Alone(NamedTuple):
    ids: TokenIds
    digest: StateId


@cache
def alone(asked: Words, tokens_max: int) -> Alone:
    """What the job comes to with nobody else there, ever."""
    stand = Stand()
    stand.job("alone", 0, talk=asked.talk, tokens_max=tokens_max)
    stand.run()
    known = stand.posted["alone"][-1]
    assert isinstance(known, DigestKnown)
    assert known.digest is not None
    return Alone(said(stand, "alone"), known.digest)


@cache
def settled_alone(asked: Words) -> tuple[PageId, ...]:
    """The pages of a settlement with nobody else there."""
    stand = Stand()
    stand.settle("alone", 0, talk=asked.talk)
    stand.run()
    (over,) = stand.posted["alone"]
    assert isinstance(over, Settled)
    assert over.complete
    assert over.pages
    return over.pages


def said(stand: Stand, name: str) -> TokenIds:
    """The ids that were delivered."""
    items = [event for event in stand.posted[name] if isinstance(event, Item)]
    return unpack(b"".join(item.ids or b"" for item in items))


class Course:
    """One engine's life, and the rules over it."""

    def __init__(self, shape: Shape) -> None:
        # Whatever can be restored is, for the conversations are short.
        host = MemoryPageTier(TestClock(), 2**30)
        tiers = Tiers(host, gain_tokens_min=1, tail_tokens_min=1)
        self.stand = Stand(
            tiers if shape.kept else None, streams=shape.streams, group_max=shape.group_max
        )
        self.work: dict[str, tuple[Work, Words]] = {}
        self.over: dict[str, object] = {}
        self.victims: set[str] = set()
        self.failures = 0
        self.faults: list[Fault] = []
        for call in ("advance", "decode", "restore"):
            setattr(self.stand.backend, call, self._watched(call))

    def do(self, deed: Deed) -> None:
        stand, name = self.stand, str(len(self.work))
        match deed:
            case Ask(asked, tokens_max, domain, patience_s):
                job = stand.job(name, 0, talk=asked.talk, tokens_max=tokens_max, domain=domain)
                job.deadline_ns = stand.clock.now_ns + patience_s * SECOND
                self.work[name] = job, asked
            case Settle(asked, patience_s):
                settlement = stand.settle(name, 0, talk=asked.talk)
                settlement.deadline_ns = stand.clock.now_ns + patience_s * SECOND
                self.work[name] = settlement, asked
            case Cancel(number):
                if there := [name for name in self.work if name not in self.over]:
                    self.work[there[number % len(there)]][0].cancelled = True
            case Turn(seconds):
                stand.clock.now_ns += seconds * SECOND
            case Fault():
                self.faults += [deed] * deed.calls

    def step(self) -> bool:
        """One step, held against the rules."""
        due = {name: how for name in self.work if (how := self._due(name)) is not None}
        self.victims.clear()
        more = step(self.stand.engine)
        ended = {name: end for name in self.work if (end := self._end(name)) is not None}
        new = {name: end for name, end in ended.items() if name not in self.over}
        assert {name: end for name, end in ended.items() if name in self.over} == self.over
        self.over = ended
        failed = {name for name, end in new.items() if isinstance(end, HuginnError)}
        assert failed == self.victims
        self.failures += len(failed)
        for name, how in due.items():
            assert new.get(name) == how
        for name, end in new.items():
            if isinstance(self.work[name][0], Job) and name not in due:
                assert end == "length" or name in failed
        return more

    def finish(self) -> None:
        """To the end: everything has ended, and nothing is left behind."""
        for _ in range(5_000):
            if not self.step():
                break
        engine, backend = self.stand.engine, self.stand.backend
        assert (engine.running, engine.waiting, engine.streams_busy) == (0, 0, 0)
        assert not engine._settling
        assert set(self.over) == set(self.work)
        assert engine.jobs_failed == self.failures
        for stream in engine.streams:
            assert not stream.leased
            assert not stream.retired
            assert backend.length(stream.index) == stream.tokens
        for name, (work, asked) in self.work.items():
            if isinstance(work, Job):
                self._check_job(name, work, asked)
            else:
                self._check_settlement(name, asked)

    def answers(self, asked: Words) -> None:
        """Who comes now is served as if nothing had been."""
        self.faults.clear()
        self.do(Ask(asked, 6, "alice", 3600))
        self.finish()
        assert list(self.over.values())[-1] == "length"

    def _check_job(self, name: str, job: Job, asked: Words) -> None:
        ids, digest = alone(asked, job.answer.tokens_max)
        given_out, events = said(self.stand, name), self.stand.posted[name]
        end = self.stand.end(name)
        after = events[events.index(end) + 1 :]
        if isinstance(end, HuginnError):
            assert isinstance(end, WorkerFault)
            assert not after
        elif end.receipt is None:
            assert end.finish in ("cancelled", "time")
            assert not given_out
            assert not after
        else:
            receipt = end.receipt
            assert receipt.finish == end.finish
            assert receipt.prompt_tokens == job.prompt.tokens
            assert receipt.prompt_tokens == receipt.reused_tokens + receipt.prefilled_tokens
            assert sum(receipt.tiers.values()) == receipt.reused_tokens
            assert receipt.completion_tokens == len(given_out)
            # Its state may have been lost again, and is else what it is alone.
            assert after in ([DigestKnown(None)], [DigestKnown(digest, _pages(after[0]))])
        assert given_out == ids[: len(given_out)]
        if self.over[name] == "length":
            assert given_out == ids

    def _check_settlement(self, name: str, asked: Words) -> None:
        (over,) = self.stand.posted[name]
        if isinstance(over, Settled):
            assert over.pages in ((), settled_alone(asked))
            assert over.complete or not over.pages
        else:
            assert isinstance(over, WorkerFault)

    def _due(self, name: str) -> object:
        """How the rules have it end in the next step, if they do."""
        work = self.work[name][0]
        late = self.stand.clock.now_ns >= work.deadline_ns
        if name in self.over or not (work.cancelled or late):
            return None
        if isinstance(work, Job):
            return "cancelled" if work.cancelled else "time"
        # One that is resident only waits for its pages: it can no longer be given up.
        engine = self.stand.engine
        queued = work in engine._settling or work in engine._inbox
        return Settled(complete=False) if queued else None

    def _end(self, name: str) -> object:
        """How it ended: a job's finish, a settlement's event, or the error; None if it has not."""
        ends: list[object] = []
        for event in self.stand.posted[name]:
            if isinstance(event, HuginnError | Settled):
                ends.append(event)
            elif isinstance(event, Item) and event.kind == "end":
                ends.append(event.finish)
        assert len(ends) <= 1, "nobody ends twice"
        return ends[0] if ends else None

    def _watched(self, call: str) -> Callable[..., Any]:
        """That call of the back end, which fails as long as there is a fault for it."""
        backend = self.stand.backend
        real = getattr(backend, call)

        def watched(*args: Any, **options: Any) -> Any:
            kind = "group" if call == "decode" and len(args[0]) > 1 else call
            fault = next((fault for fault in self.faults if fault.call == kind), None)
            if fault is not None:
                self.faults.remove(fault)
                self._strike(fault, args)
                backend.fault, backend.fault_class = fault.kind, fault.fault_class
            return real(*args, **options)

        return watched

    def _strike(self, fault: Fault, args: tuple[Any, ...]) -> None:
        """Write down whom the fault of this call harms."""
        if fault.call == "restore" or (fault.call == "group" and fault.kind == "keep"):
            return
        # Of a group, the back end fails at the first.
        stream = args[0][0][0] if fault.call in ("decode", "group") else args[0]
        engine = self.stand.engine
        running = [*engine._prefilling, *engine._decoding]
        owners: list[Work] = [job for job in running if job.stream == stream]
        owner = owners[0] if owners else engine._settling[0]
        self.victims.add(owner.key.response)


def _pages(event: object) -> tuple[PageId, ...]:
    assert isinstance(event, DigestKnown)
    return event.pages


# More streams than a group carries, as many, and the least of both; with tiers and without.
SHAPES = [
    Shape(4, 3, kept=False),
    Shape(4, 3, kept=True),
    Shape(3, 3, kept=True),
    Shape(2, 2, kept=True),
    Shape(1, 1, kept=True),
]


@pytest.mark.req("KV-3", "KV-12")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=max(40, settings().max_examples // 5))
@given(crowd=crowds, plan=plans, last=words)
def test_everybody_gets_their_own_answer_but_for_whom_something_befell(
    shape: Shape, crowd: list[Ask], plan: list[Planned], last: Words
) -> None:
    course = Course(shape)
    for ask in crowd:
        course.do(ask)
    for steps, deed in plan:
        for _ in range(steps):
            course.step()
        course.do(deed)
    course.finish()
    course.answers(last)
