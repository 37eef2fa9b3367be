"""What is open, what may be opened, and cancellations that came first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.worker.admission import Admission
from actors.worker.jobs import JobKey, Owner
from actors.worker.limits import WorkerLimits
from protocol.errors import Conflict, LimitExceeded, Unavailable
from tests.worker_rooms import SECOND, HandClock

ALICE, BOB = Owner("alice", b"a"), Owner("bob", b"b")


def job(owner: Owner, response: str) -> Any:
    return SimpleNamespace(key=JobKey(owner, response), cancelled=False)


def opened(**limits: int) -> tuple[Admission, HandClock]:
    clock = HandClock()
    return Admission(clock, WorkerLimits(**limits)), clock


async def test_an_open_name_is_taken_and_the_count_is_bounded() -> None:
    admission, _ = opened(jobs_max=2)
    first = job(ALICE, "r")
    admission.check_job(first.key)
    admission.add(first)
    with pytest.raises(Conflict):
        admission.check_job(first.key)
    admission.check_job(JobKey(BOB, "r"))
    admission.add(job(BOB, "r"))
    with pytest.raises(Unavailable, match="the limit is 2"):
        admission.check_job(JobKey(ALICE, "other"))
    admission.remove(first)
    admission.check_job(first.key)


async def test_closed_admits_nothing() -> None:
    admission, _ = opened()
    admission.close()
    with pytest.raises(Unavailable):
        admission.check_job(JobKey(ALICE, "r"))
    with pytest.raises(Unavailable):
        admission.check_settlement()


async def test_cancelling_reaches_the_owners_job_only() -> None:
    admission, _ = opened()
    open_job = job(ALICE, "r")
    admission.add(open_job)
    assert not admission.cancel(JobKey(BOB, "r"))
    assert not open_job.cancelled
    assert admission.cancel(JobKey(ALICE, "r"))
    assert open_job.cancelled
    assert not admission.take_tombstone(JobKey(ALICE, "r"))


async def test_tombstones_expire_are_told_once_and_are_bounded_for_each_owner() -> None:
    admission, clock = opened(tombstones_max=3)
    admission.cancel(JobKey(BOB, "b"))
    for number in range(5):
        clock.now_ns += SECOND
        admission.cancel(JobKey(ALICE, str(number)))
    # The oldest of Alice's are gone; Bob's is not hers to push out.
    found = [admission.take_tombstone(JobKey(ALICE, str(n))) for n in range(5)]
    assert found == [False, False, True, True, True]
    assert not admission.take_tombstone(JobKey(ALICE, "4"))
    clock.now_ns += 54 * SECOND
    assert admission.take_tombstone(JobKey(BOB, "b"))
    admission.cancel(JobKey(BOB, "c"))
    clock.now_ns += 60 * SECOND
    assert not admission.take_tombstone(JobKey(BOB, "c"))


async def test_cancelling_again_renews_the_tombstone() -> None:
    admission, clock = opened()
    admission.cancel(JobKey(ALICE, "r"))
    clock.now_ns += 40 * SECOND
    admission.cancel(JobKey(BOB, "later"))
    admission.cancel(JobKey(ALICE, "r"))
    clock.now_ns += 40 * SECOND
    assert admission.take_tombstone(JobKey(ALICE, "r"))


def test_questions_after_pages_are_bounded_in_size_and_number() -> None:
    admission, _ = opened(pages_max=2, page_asks_max=1)
    for pages in (0, 3):
        with pytest.raises(LimitExceeded, match="1 to 2"), admission.page_ask(pages):
            pass
    with admission.page_ask(2), pytest.raises(Unavailable, match="the limit is 1"):
        admission.page_ask(1).__enter__()
    with pytest.raises(ZeroDivisionError), admission.page_ask(1):
        raise ZeroDivisionError
    with admission.page_ask(1):
        admission.close()
    with pytest.raises(Unavailable, match="stopping"), admission.page_ask(1):
        pass
