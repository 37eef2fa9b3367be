"""One suite for every shell: the same rooms, the same answers, the same deaths.

Each shell runs as a user starts it, in a process of its own, with the tiny model.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2 as httpx
import openai
import pytest

from tests.installations import Service, alive, tiny_home

MODEL = "tiny-gemma"
HELLO = [{"role": "user", "content": "Hello there, how are you today?"}]


@pytest.fixture(scope="module", params=["embedded", pytest.param("ray", marks=[pytest.mark.ray])])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    home = tiny_home(tmp_path_factory.mktemp("shell") / "home")
    with Service(home, shell=request.param) as running:
        yield running


def chat(service: Service, messages: list[dict[str, str]], **more: object) -> httpx.Response:
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0, **more}
    return service.post("/v1/chat/completions", body)


def long_stream(service: Service, key: str | None = None) -> AbstractContextManager[httpx.Response]:
    """A streamed answer that would go on for thousands of tokens."""
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 6000, "temperature": 1, "seed": 5}
    return httpx.stream(
        "POST",
        f"{service.url}/v1/chat/completions",
        json={**body, "stream": True},
        headers={"Authorization": f"Bearer {key or service.key}"},
        timeout=60,
    )


@pytest.mark.req("OPS-1")
def test_the_worker_is_a_process_of_its_own(service: Service) -> None:
    assert service.process is not None
    pid = service.worker_pid()
    assert pid != service.process.pid
    assert alive(pid)


def test_an_answer_streamed_and_whole_is_the_same(service: Service) -> None:
    whole = chat(service, HELLO)
    assert whole.status_code == 200, whole.text
    with service.client().chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=8,
        temperature=0,
        stream=True,  # type: ignore[call-overload]
    ) as stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.json()["choices"][0]["message"]["content"]


def test_the_second_turn_prefills_only_what_is_new(service: Service) -> None:
    first = chat(service, HELLO).json()
    service.receipt(first["id"])
    messages = [*HELLO, first["choices"][0]["message"], {"role": "user", "content": "And now?"}]
    deadline = time.monotonic() + 120
    while True:
        second = chat(service, messages).json()
        receipt = service.receipt(second["id"])
        reused = [block["reused"] == block["tokens"] for block in receipt["blocks"]]
        # The answer settles off the critical path; ask again until it has.
        if reused[:2] == [True, True] or time.monotonic() > deadline:
            break
    assert reused[:2] == [True, True]
    assert receipt["reused_tokens"] + receipt["prefilled_tokens"] == receipt["prompt_tokens"]


def test_many_at_once_each_get_the_answer_that_they_get_alone(service: Service) -> None:
    prompts = [[{"role": "user", "content": f"Tell me about number {n}."}] for n in range(6)]
    alone = [chat(service, prompt).json()["choices"][0]["message"] for prompt in prompts]
    together: list[object] = [None] * len(prompts)

    def ask(index: int) -> None:
        together[index] = chat(service, prompts[index]).json()["choices"][0]["message"]

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


@pytest.mark.req("DRV-7")
def test_turns_become_evidence_that_the_same_turns_agree_with(service: Service) -> None:
    first = chat(service, HELLO).json()
    service.receipt(first["id"])
    turn = [*HELLO, first["choices"][0]["message"], {"role": "user", "content": "And now?"}]
    second = chat(service, turn).json()
    service.receipt(second["id"])
    # Of a settled history there are assemblies and advances.
    memo = service.memo(invocations=4)
    chat(service, turn)
    known = memo["domains"][0]["invocations"]
    memo = service.memo(invocations=known)
    assert memo["quarantined"] == 0
    assert memo["counters"].get("report conflict", 0) == 0
    assert set(memo["counters"]) <= {"report inserted", "report already-present"}


@pytest.mark.req("OPS-6")
def test_kill_9_of_the_worker_in_a_stream_is_told_and_the_next_request_works(
    service: Service,
) -> None:
    pid = service.worker_pid()
    with long_stream(service) as answer:
        assert answer.status_code == 200
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        next(lines)
        os.kill(pid, signal.SIGKILL)
        rest = list(lines)
    last = json.loads(rest[-1].removeprefix("data: "))
    assert "worker" in last["error"]["message"]
    assert "data: [DONE]" not in rest
    service.wait_until_ready()
    assert chat(service, HELLO).status_code == 200
    assert service.worker_pid() != pid


def test_a_client_that_goes_away_frees_its_stream(service: Service) -> None:
    with long_stream(service) as answer:
        next(answer.iter_lines())
    deadline = time.monotonic() + 60
    while True:
        worker = service.worker_stats()
        if worker["streams_busy"] == 0 and worker["waiting"] == 0:
            break
        assert time.monotonic() < deadline, worker
        time.sleep(0.05)


@pytest.mark.req("AUT-4")
def test_a_revoked_key_is_refused_by_the_next_request(service: Service) -> None:
    made = service.post("/huginn/v1/keys", {"principal": "guest"}).json()
    guest = service.client(made["key"])
    assert [model.id for model in guest.models.list()] == [MODEL]
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 2}
    assert service.post("/v1/chat/completions", body, made["key"]).status_code == 200
    assert service.delete("/huginn/v1/keys/guest").status_code == 200
    with pytest.raises(openai.AuthenticationError):
        guest.models.list()


@pytest.mark.req("AUT-4", "OPS-6")
def test_a_revocation_reaches_a_worker_that_was_started_again(service: Service) -> None:
    """Its next message to a room that died since the last one is the authority's revocation."""

    def guest(name: str) -> str:
        return str(service.post("/huginn/v1/keys", {"principal": name}).json()["key"])

    kept, first = guest("kept"), guest("first")
    assert service.delete("/huginn/v1/keys/first").json()["rooms_waiting"] == []
    pid = service.worker_pid()
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # Until it is the new worker that answers.
    while chat(service, HELLO).status_code != 200 or service.worker_pid() == pid:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with long_stream(service, kept) as answer:
        assert answer.status_code == 200, answer.read()
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        next(lines)
        told = service.delete("/huginn/v1/keys/kept").json()
        assert told["rooms_waiting"] == []
        rest = list(lines)
    last = json.loads(rest[-1].removeprefix("data: "))
    assert last["error"]["code"] == "key_revoked"
    assert service.get("/v1/models", first).status_code == 401


def test_sigterm_leaves_no_process_and_no_socket(service: Service) -> None:
    """The last of the suite: it stops the service. `Service.stop` fails if anything is left."""
    service.stop()
    with pytest.raises(httpx.ConnectError):
        service.get("/health")
    assert not Path(service.home / "service.json").exists()
    # Native code that took the signal from us would have printed its stack.
    assert "SIGTERM received" not in (service.home / "test-service.log").read_text()
