"""Clients of a service that dies under them, each of which remembers what it was told.

An emitter appends events and takes them as kept once that was answered; what was not answered it
sends again, with its key. A talker takes turns and takes an answer as kept once its end was told.
`Moments` is where whoever kills the service sees what each of them is doing.
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2 as httpx

from tests.installations import Service

MODEL: Final = "tiny-gemma"
# What a client does: it waits for an append, for the beginning of a turn, for the end of an answer;
# or it has heard that end, and the service is at what it does off the answer's path.
APPEND, BEGIN, ANSWER, SETTLE, REST = "append", "begin", "answer", "settle", "rest"
PHASES: Final = (APPEND, BEGIN, ANSWER, SETTLE)
_SECONDS_MAX: Final = 120.0
_SECONDS_USUAL: Final = 0.02


class Moments:
    """What every client of one life of the service is doing, until it is `killed`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entered: Counter[str] = Counter()
        self._doing: dict[str, tuple[str, float]] = {}
        self._lasted: dict[str, list[float]] = {}
        self.killed = threading.Event()

    def enter(self, who: str, phase: str) -> None:
        now = time.monotonic()
        with self._changed:
            before, since = self._doing.get(who, (REST, now))
            self._lasted.setdefault(before, []).append(now - since)
            self._doing[who] = phase, now
            self._entered[phase] += 1
            self._changed.notify_all()

    def reached(self, phase: str, times: int) -> bool:
        """Whether `phase` was entered so often, now or in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._entered[phase] >= times, _SECONDS_MAX)

    def lasting(self) -> set[str]:
        """The phases in which somebody is."""
        with self._changed:
            return {phase for phase, _ in self._doing.values()} - {REST}

    def usual(self, phase: str) -> float:
        """How many seconds `phase` lasted here, half of the time."""
        with self._changed:
            return statistics.median(self._lasted.get(phase, [_SECONDS_USUAL]))


class Client:
    """Acts until the service is gone, and goes on in its next life."""

    # What is done in one life has to find room in a prompt.
    acts_max = 12

    def __init__(self, service: Service, name: str, draw: random.Random) -> None:
        self.service = service
        self.name = name
        self.draw = draw

    def live(self, moments: Moments) -> None:
        """Acts in one life of the service, to its end."""
        with self._connected() as http:
            for _ in range(self.acts_max):
                try:
                    self.act(http, moments)
                except httpx.TransportError:
                    assert moments.killed.wait(_SECONDS_MAX), "a service that lives broke off"
                    return
                if moments.killed.wait(self.draw.uniform(0, 0.1)):
                    return
            assert moments.killed.wait(_SECONDS_MAX), "nobody kills a service"

    def act_once(self) -> None:
        """One act, of a service that nobody kills."""
        with self._connected() as http:
            self.act(http, Moments())

    def act(self, http: httpx.Client, moments: Moments) -> None:
        raise AssertionError("a client acts in a way of its own")

    def _connected(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.service.key}"}
        return httpx.Client(
            base_url=self.service.url, headers=headers, timeout=_SECONDS_MAX, verify=False
        )


class Emitter(Client):
    """Appends to the source `name`, one to three events at once. `acknowledged` are the number and
    the id of each, by its subject."""

    acts_max = 8

    def __init__(self, service: Service, name: str, draw: random.Random) -> None:
        super().__init__(service, name, draw)
        self.acknowledged: dict[str, tuple[int, str]] = {}
        self._named = 0
        self._pending: list[dict[str, str]] = []

    def act(self, http: httpx.Client, moments: Moments) -> None:
        if not self._pending:
            count = self.draw.choice((1, 1, 3))
            numbers = range(self._named + 1, self._named + 1 + count)
            self._named += count
            self._pending = [{"kind": "Close", "subject": f"{self.name}-{n}"} for n in numbers]
        moments.enter(self.name, APPEND)
        answer = http.post(
            f"/huginn/v1/sources/{self.name}/events",
            json=self._pending,
            headers={"Idempotency-Key": self._pending[0]["subject"]},
        )
        assert answer.status_code == 200, answer.text
        for event, row in zip(self._pending, answer.json()["data"], strict=True):
            self.acknowledged[event["subject"]] = (row["seq"], row["id"])
        self._pending = []
        moments.enter(self.name, REST)


@dataclass(frozen=True)
class Question:
    """What is asked under one key; `known` are the events that were acknowledged before."""

    key: str
    text: str
    known: frozenset[str]


@dataclass(frozen=True)
class Told:
    """A turn whose answer's end was told."""

    session: str
    turn: str
    context: str
    response: str
    text: str
    known: frozenset[str]


@dataclass
class Talker(Client):
    """Takes turns in a session. After a death it asks the same again, or something else."""

    service: Service
    name: str
    draw: random.Random
    session: str
    acknowledged: Callable[[], frozenset[str]]
    told: list[Told] = field(default_factory=list)
    pending: Question | None = None

    def __post_init__(self) -> None:
        super().__init__(self.service, self.name, self.draw)
        self._asked = 0

    def act(self, http: httpx.Client, moments: Moments) -> None:
        question = self.pending
        if question is None or self.draw.random() < 0.5:
            self._asked += 1
            name = f"{self.name}-q{self._asked}"
            question = Question(name, f"{name}?", self.acknowledged())
        self.pending = question
        moments.enter(self.name, BEGIN)
        path, body = self.asked(question.text)
        headers = {"Idempotency-Key": question.key}
        if "previous_response_id" not in body:
            headers["Huginn-Session"] = self.session
        with http.stream("POST", path, json=body | {"stream": True}, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            moments.enter(self.name, ANSWER)
            response, text = self.heard(_data(answer.iter_lines(), moments))
            assert answer.headers["huginn-session"] == self.session
            turn, context = answer.headers["huginn-turn"], answer.headers["huginn-context"]
        moments.enter(self.name, SETTLE)
        self.pending = None
        self.told.append(Told(self.session, turn, context, response, text, question.known))
        self.keep(question.text, text)

    def asked(self, text: str) -> tuple[str, dict[str, Any]]:
        """The path and the body of a turn."""
        raise AssertionError("a talker asks in a way of its own")

    def heard(self, chunks: Iterator[str]) -> tuple[str, str]:
        """The response's id and the text, once the end is told."""
        raise AssertionError("a talker hears in a way of its own")

    def keep(self, text: str, answer: str) -> None:
        """A turn was answered."""


@dataclass
class Resender(Talker):
    """Keeps its own history, and sends it as chat completions."""

    history: list[dict[str, str]] = field(default_factory=list)

    def asked(self, text: str) -> tuple[str, dict[str, Any]]:
        messages = [*self.history, {"role": "user", "content": text}]
        return "/v1/chat/completions", {"model": MODEL, "messages": messages}

    def heard(self, chunks: Iterator[str]) -> tuple[str, str]:
        text, response = "", ""
        for chunk in chunks:
            if chunk == "[DONE]":
                return response, text
            part = json.loads(chunk)
            response = part["id"]
            text += "".join(each["delta"].get("content") or "" for each in part["choices"])
        raise httpx.ReadError("the stream had no end")

    def keep(self, text: str, answer: str) -> None:
        said = {"role": "assistant", "content": answer}
        self.history += [{"role": "user", "content": text}, said]


@dataclass
class Continuer(Talker):
    """Goes on from the last response that it heard, or from `head`."""

    head: str | None = None

    def asked(self, text: str) -> tuple[str, dict[str, Any]]:
        body = {"model": MODEL, "input": text}
        if self.head is not None:
            body["previous_response_id"] = self.head
        return "/v1/responses", body

    def heard(self, chunks: Iterator[str]) -> tuple[str, str]:
        text = ""
        for chunk in chunks:
            part = json.loads(chunk)
            if part["type"] == "response.output_text.delta":
                text += part["delta"]
            if part["type"] in ("response.completed", "response.incomplete"):
                self.head = part["response"]["id"]
                return self.head, text
        raise httpx.ReadError("the stream had no end")


def _data(lines: Iterator[str], moments: Moments) -> Iterator[str]:
    """What the events of a stream hold. One that tells an error is only told by the dying."""
    for line in lines:
        if line.startswith("data: "):
            if '"error"' in line[:60]:
                assert moments.killed.is_set(), line
                raise httpx.ReadError(line)
            yield line.removeprefix("data: ")
