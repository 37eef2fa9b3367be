"""Jobs: what their states and owners say."""

from __future__ import annotations

from actors.worker.answer import Answer
from actors.worker.jobs import Event, Job, JobKey, Owner, Settlement
from actors.worker.prompt import PromptReader
from protocol.tokens import pack
from tests.fake_backend import FakeBackend
from tests.worker_rooms import OPENER, PROFILE, Talk, asked, text_ids


def test_a_job_is_prefilled_when_every_advance_was_fed() -> None:
    tokenizer = FakeBackend().tokenizer
    reader = PromptReader(PROFILE, tokenizer, context_tokens=99, chunk_tokens=4)
    talk = Talk().add("user", text_ids("hello"))
    prompt = reader.read(talk.segments, pack(OPENER), answer_tokens=1)
    answer = Answer(asked([]), tokenizer, prompt=prompt.ids, context_tokens=99, seed=1)
    said: list[Event] = []
    key = JobKey(Owner("alice", b"p"), "r")
    job = Job(key, prompt, answer, None, queued_ns=0, deadline_ns=1, post=said.append)
    assert job.domain == "alice"
    assert job.stream < 0
    fed = []
    for _ in prompt.advances:
        fed.append(job.prefilled)
        job.next_advance += 1
    assert fed == [False] * len(prompt.advances)
    assert job.prefilled
    settlement = Settlement(key, prompt, deadline_ns=1, post=said.append)
    assert settlement.domain == "alice"


def test_two_jobs_are_never_equal_though_their_fields_are() -> None:
    """The engine removes a job from its queues by identity."""
    prompt = PromptReader(PROFILE, FakeBackend().tokenizer, context_tokens=9, chunk_tokens=4).read(
        [], pack(OPENER), answer_tokens=1
    )
    key = JobKey(Owner("alice", b"p"), "r")
    said: list[Event] = []
    one, other = (Settlement(key, prompt, deadline_ns=1, post=said.append) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2
