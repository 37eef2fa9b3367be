"""The worker's engine on a stand for tests: stepped by hand over the strict fake back end."""

from __future__ import annotations

from typing import Any

from actors.worker.answer import Answer
from actors.worker.drivers import step
from actors.worker.engine import Engine
from actors.worker.jobs import Event, Job, JobKey, Owner, Settlement
from actors.worker.prompt import PromptReader
from actors.worker.tiers import Tiers
from protocol.errors import HuginnError
from protocol.messages.worker import Item
from protocol.tokens import pack
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
