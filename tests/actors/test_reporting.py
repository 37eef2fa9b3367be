"""Reporting to muninn: nothing waits for it, and nothing depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from actors.reporting import BATCH_MAX, EvidenceQueue
from actors.room import Room
from protocol.derivation import Derivation, open_evidence
from protocol.envelope import Envelope
from protocol.errors import StoreFault
from protocol.ids import ChainId
from protocol.messages import Operation
from protocol.messages.muninn import MemoStatus, Report
from tests.derivations import advance
from tests.muninn_rooms import Raven
from tests.rooms import Installation
from tests.worker_rooms import until

BUILD = "a build"


class Executing(Room):
    """A room that executes, and does nothing else."""

    operations: ClassVar[Mapping[str, Operation]] = {}


class Stand:
    """A queue of the worker's beside a muninn room."""

    def __init__(self, raven: Raven, **options: Any) -> None:
        self.raven = raven
        self.room = Executing("worker", raven.house.world("worker"))
        self.queue = EvidenceQueue(self.room, BUILD, **options)

    def put(self, *numbers: int, domain: str = "alice") -> None:
        for number in numbers:
            result = ChainId.of(b"%d" % number)
            self.queue.put(domain, result, lambda n=number: advance(n), {"tokens": number})

    @property
    def reports(self) -> list[Report]:
        return self.raven.house.post.asked("muninn", "report", Report)

    @property
    def said(self) -> list[Derivation]:
        """What was reported, in order."""
        found = []
        for report in self.reports:
            for entry in report.entries:
                assert entry.evidence is not None
                found.append(Derivation(entry.invocation, open_evidence(entry.evidence).outputs))
        return found

    async def status(self) -> MemoStatus:
        operator = await self.raven.house.enroll("operator", administers=True)
        return await self.raven.status(operator)


async def started(**options: Any) -> Stand:
    return Stand(await Raven(reporting=True).start(), **options)


def advances(*numbers: int) -> list[Derivation]:
    return [advance(number) for number in numbers]


@pytest.mark.req("DRV-7")
async def test_what_was_executed_is_known_to_muninn_afterwards() -> None:
    stand = await started()
    stand.put(1, 2)
    stand.put(3, domain="bob")
    assert stand.said == []  # nothing happens while the operation runs
    await until(lambda: len(stand.said) == 3, pause_s=0.01)
    await stand.queue.drain()
    (entry, *_) = stand.reports[0].entries
    assert entry.evidence is not None
    evidence = open_evidence(entry.evidence)
    assert (evidence.engine_build, evidence.domain) == (BUILD, "alice")
    assert evidence.executor == stand.room.world.signer.public
    assert evidence.measurements == {"tokens": 1}
    memo = await stand.status()
    assert memo.counters == {"report inserted": 3}
    assert {each.domain: each.invocations for each in memo.domains} == {"alice": 2, "bob": 1}


async def test_the_same_result_is_said_once_in_a_domain() -> None:
    stand = await started()
    stand.put(1, 1)
    await until(lambda: stand.said == advances(1), pause_s=0.01)
    stand.put(1, 2)
    stand.put(1, domain="bob")
    await stand.queue.drain()
    assert stand.said == advances(1, 2, 1)
    assert (stand.queue.dropped, stand.queue.lost) == (0, 0)


async def test_batches_are_bounded_and_full_ones_do_not_wait() -> None:
    stand = await started()
    began = time.monotonic()
    stand.put(*range(2 * BATCH_MAX))
    await until(lambda: len(stand.reports) == 2)
    assert [len(each.entries) for each in stand.reports] == [BATCH_MAX, BATCH_MAX]
    stand.put(*range(1000, 1003))
    await stand.queue.drain()
    assert [len(each.entries) for each in stand.reports] == [BATCH_MAX, BATCH_MAX, 3]
    assert time.monotonic() - began < 20


async def test_beyond_its_bound_the_oldest_are_dropped_and_may_come_again() -> None:
    stand = await started(waiting_max=5)
    stand.put(*range(8))
    assert (len(stand.queue), stand.queue.dropped) == (5, 3)
    stand.put(2)
    assert stand.queue.dropped == 4
    await stand.queue.drain()
    assert stand.said == advances(4, 5, 6, 7, 2)


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("trouble", ["down", "absent", "broken"])
async def test_a_memo_that_cannot_be_told_loses_evidence_alone(
    trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    stand = await started()
    post = stand.raven.house.post
    caplog.set_level("INFO", "huginn.reporting")

    async def fail(_: Envelope) -> None:
        raise StoreFault("the disk is gone")

    match trouble:
        case "down":
            post.down.add("muninn")
        case "absent":
            del post.rooms["muninn"]
        case _:
            post.meanwhile = fail
    stand.put(1, 2)
    await until(lambda: stand.queue.lost == 2, pause_s=0.01)
    assert "2 executions go unremembered" in caplog.text
    post.down.clear()
    post.meanwhile = None
    post.rooms["muninn"] = stand.raven.room
    stand.put(1)
    await stand.queue.drain()
    assert stand.said[-1:] == advances(1)
    assert stand.queue.lost == 2


@pytest.mark.req("DRV-5")
async def test_a_memo_that_hangs_holds_a_drain_up_for_a_second() -> None:
    stand = await started()

    async def hang(_: Envelope) -> None:
        await asyncio.sleep(3600)

    stand.raven.house.post.meanwhile = hang
    stand.put(*range(2 * BATCH_MAX))
    began = time.monotonic()
    await stand.queue.drain()
    assert 0.9 < time.monotonic() - began < 10
    assert len(stand.queue) == 0
    assert stand.queue.lost == BATCH_MAX


async def test_what_cannot_be_derived_costs_its_batch() -> None:
    stand = await started()

    def broken() -> Derivation:
        raise RuntimeError("no such thing")

    stand.queue.put("alice", ChainId.of(b"broken"), broken, {})
    await until(lambda: stand.queue.lost == 1, pause_s=0.01)
    stand.put(1)
    await stand.queue.drain()
    assert stand.said == advances(1)


async def test_nothing_is_taken_after_the_drain_or_without_a_muninn_room() -> None:
    stand = await started()
    await stand.queue.drain()
    stand.put(1)
    assert len(stand.queue) == 0
    house = await Installation().start()
    alone = EvidenceQueue(Executing("worker", house.world("worker")), BUILD)
    alone.put("alice", ChainId.of(b"1"), lambda: advance(1), {})
    assert len(alone) == 0
    await alone.drain()


@pytest.mark.req("AUT-8")
async def test_what_is_forgotten_is_not_reported_and_what_is_on_its_way_is_waited_for() -> None:
    stand = await started()
    stand.put(1, 2)
    stand.put(3, domain="bob")
    await stand.queue.forget(["alice"])
    await until(lambda: len(stand.said) == 1, pause_s=0.01)
    assert stand.said == advances(3)
    # Said again, it is news again.
    stand.put(1)
    gate, there = asyncio.Event(), asyncio.Event()

    async def held(envelope: Envelope) -> None:
        there.set()
        await gate.wait()

    stand.raven.house.post.meanwhile = held
    await there.wait()
    forgetting = asyncio.create_task(stand.queue.forget(["alice"]))
    await stand.queue.forget(["bob"])  # nothing of his is on its way
    assert not forgetting.done()
    gate.set()
    await forgetting
