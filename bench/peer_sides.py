"""Huginn and its peer asked alike: one conversation, streamed, timed at the client.

A side is asked for messages. Huginn gets them as a chat; the peer, whose base model has no chat
template, gets the very text that Huginn's grammar makes of them, as a completion.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.peer_server import Peer, cpu_seconds, kill_tree
from tests.installations import Service

Messages = list[dict[str, str]]
SETTLE_SECONDS_MAX = 2.0
_REQUEST_SECONDS_MAX = 300
_HEADERS = {"system": "System:", "user": "Q:", "assistant": "A:"}
_STOPS = ["\nSystem:", "\nContext:", "\nQ:", "\nA:"]


@dataclass(frozen=True)
class Sample:
    """One answer. `wall_ms` and `cpu_ms` (of the whole side) are up to its first text."""

    wall_ms: float
    cpu_ms: float
    text: str
    prompt_tokens: int = 0
    reused_tokens: int = 0
    tiers: dict[str, int] = field(default_factory=dict)


class Side(Protocol):
    """A service under measurement."""

    name: str

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def ask(self, messages: Messages, tokens_max: int = 1) -> Sample: ...
    def generate(self, messages: Messages, tokens_max: int) -> int: ...
    def settle(self) -> None: ...
    def cpu(self) -> float: ...


def transcript(messages: Messages, *, instruct: bool) -> str:
    """The text that Huginn's grammar makes of `messages`, with the opener, without BOS."""
    if not instruct:
        lines = [f"{_HEADERS[each['role']]} {each['content']}" for each in messages]
        return "\n".join([*lines, _HEADERS["assistant"]])
    text, turn = "", ""
    for each in messages:
        said = "model" if each["role"] == "assistant" else "user"
        if said == turn:
            text += "\n\n"
        else:
            text += f"{'<end_of_turn>' + chr(10) if turn else ''}<start_of_turn>{said}\n"
        text += each["content"]
        turn = said
    return f"{text}<end_of_turn>\n<start_of_turn>model\n"


class HuginnSide:
    """The service, embedded shell, in processes of its own."""

    name = "huginn"

    def __init__(self, service: Service, model: str) -> None:
        self._service = service
        self._model = model
        self._last = ""
        self.unsettled = 0

    def start(self) -> object:
        return self._service.start()

    def kill(self) -> None:
        """SIGKILL for every process of it."""
        if self._service.process is not None:
            kill_tree(self._service.process)

    def ask(self, messages: Messages, tokens_max: int = 1) -> Sample:
        found, self._last = _streamed(
            self._service.port,
            "/v1/chat/completions",
            self._body(messages, tokens_max, stream=True),
            self._pid,
            key=self._service.key,
        )
        return found

    def with_receipt(self, sample: Sample) -> Sample:
        """`sample` of the last request, and what its receipt says was reused."""
        answer = self._service.get(f"/huginn/v1/receipts/{self._last}").json()
        return Sample(
            sample.wall_ms,
            sample.cpu_ms,
            sample.text,
            answer["prompt_tokens"],
            answer["reused_tokens"],
            {tier: count for tier, count in answer["tiers"].items() if count},
        )

    def generate(self, messages: Messages, tokens_max: int) -> int:
        """How many tokens it answered; not streamed."""
        answer = self._service.post(
            "/v1/chat/completions", self._body(messages, tokens_max, stream=False)
        ).json()
        return int(answer["usage"]["completion_tokens"])

    def settle(self) -> None:
        """Waits until the last answer is settled: its receipt has a state digest. Bounded."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            answer = self._service.get(f"/huginn/v1/receipts/{self._last}").json()
            if answer["state_digest"] is not None:
                return
            time.sleep(0.02)
        # A digest needs every page of the prompt; one that was evicted does not come back.
        self.unsettled += 1

    def cpu(self) -> float:
        """CPU seconds of all its processes until now."""
        return cpu_seconds(self._pid)

    def tiers(self) -> object:
        """The worker's counters of its page tiers, where it has any."""
        return self._service.worker_stats().get("tiers")

    @property
    def _pid(self) -> int:
        assert self._service.process is not None
        return self._service.process.pid

    def _body(self, messages: Messages, tokens_max: int, *, stream: bool) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": self._model, "messages": messages, "stream": stream}
        return {**asked, "max_tokens": tokens_max, "temperature": 0}


class PeerSide:
    """The binding's server."""

    def __init__(self, name: str, peer: Peer, *, instruct: bool) -> None:
        self.name = name
        self._peer = peer
        self._instruct = instruct

    def start(self) -> object:
        return self._peer.start()

    def kill(self) -> None:
        self._peer.kill()

    def ask(self, messages: Messages, tokens_max: int = 1) -> Sample:
        body = self._body(messages, tokens_max, stream=True)
        found, _ = _streamed(self._peer.port, "/v1/completions", body, self._pid)
        return found

    def generate(self, messages: Messages, tokens_max: int) -> int:
        """How many tokens it answered; not streamed: a stream is cut off by the next request."""
        answer = self._posted("/v1/completions", self._body(messages, tokens_max, stream=False))
        return int(answer["usage"]["completion_tokens"])

    def count(self, messages: Messages) -> int:
        """The tokens of the prompt, as the peer reads it."""
        text = transcript(messages, instruct=self._instruct)
        return int(self._posted("/extras/tokenize/count", {"input": text})["count"])

    def settle(self) -> None:
        """Nothing: it does no work between requests."""

    def cpu(self) -> float:
        """CPU seconds of its process until now."""
        return cpu_seconds(self._pid)

    @property
    def _pid(self) -> int:
        assert self._peer.process is not None
        return self._peer.process.pid

    def _posted(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with _response(self._peer.port, path, body, None) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found

    def _body(self, messages: Messages, tokens_max: int, *, stream: bool) -> dict[str, Any]:
        text = transcript(messages, instruct=self._instruct)
        asked: dict[str, Any] = {"prompt": text, "stream": stream, "stop": _STOPS}
        return {**asked, "max_tokens": tokens_max, "temperature": 0}


def _response(port: int, path: str, body: object, key: str | None) -> http.client.HTTPResponse:
    """The open response of one POST on a connection of its own. Raises AssertionError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_REQUEST_SECONDS_MAX)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    assert response.status == 200, f"{path}: {response.status} {response.read()[:500]!r}"
    return response


def _streamed(
    port: int, path: str, body: object, pid: int, *, key: str | None = None
) -> tuple[Sample, str]:
    """The sample, and the response's id. Reads the stream to its end."""
    cpu, began = cpu_seconds(pid), time.perf_counter()
    text, identifier = "", ""
    wall = spent = None
    with _response(port, path, body, key) as response:
        for chunk in _chunks(response):
            identifier = chunk["id"]
            for choice in chunk["choices"]:
                piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
                if wall is None and (piece or choice["finish_reason"]):
                    wall, spent = time.perf_counter() - began, cpu_seconds(pid) - cpu
                text += piece
    assert wall is not None, f"{path}: the stream ended without an answer"
    assert spent is not None
    return Sample(wall * 1e3, spent * 1e3, text.strip()), identifier


def _chunks(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            chunk: dict[str, Any] = json.loads(line[6:])
            assert "error" not in chunk, chunk
            yield chunk
