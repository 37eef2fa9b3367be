"""Sessions over the real rooms and a real model: whatever the transport, a turn knows what happened
since the last one, says it once, and the next prompt begins with the one that was computed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI

from actors.gateway.limits import Limits
from tests.happenings import QUESTION, happened
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
RIGHTS = ("advance", "assemble", "emit", "generate", "observe", "read", "telemetry", "write")
TOLD = "1122 merged"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tiny_home(tmp_path_factory.mktemp("sessions") / "home")) as started:
        yield started


@pytest.fixture
def key(service: Service) -> str:
    """The key of a principal of this test alone."""
    asked = {"principal": f"timmy-{next(_numbers)}", "rights": list(RIGHTS)}
    return str(service.post("/huginn/v1/keys", asked).json()["key"])


def session_of(service: Service, key: str) -> str:
    body = {"persona": "timmy", "scope": "all"}
    made = service.post("/huginn/v1/sessions", body, key)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def turns(service: Service, session: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/huginn/v1/sessions/{session}", key).json()["turns"]
    return found


def blocks(service: Service, context: str, key: str) -> list[dict[str, Any]]:
    """What the model read, as `huginn ctx show` has it."""
    shown = service.get(f"/huginn/v1/contexts/{context}", key)
    assert shown.status_code == 200, shown.text
    found: list[dict[str, Any]] = shown.json()["blocks"]
    return found


def told(contents: list[dict[str, Any]]) -> list[int]:
    """At which block of a prompt each occurrence stands."""
    return [
        index for index, block in enumerate(contents) for _ in range(block["content"].count(TOLD))
    ]


def settled_receipt(service: Service, response: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/huginn/v1/receipts/{response}", key).json()
    return found


def assert_builds_on(service: Service, contexts: list[str], last: str, key: str) -> None:
    """Both prompts hold it once, at the same place; the second begins with the first, whose state
    was not computed again."""
    first, second = (blocks(service, context, key) for context in contexts)
    assert told(first) == told(second) == [0]
    assert second[: len(first)] == first
    receipt = settled_receipt(service, last, key)["blocks"]
    assert [block["block_id"] for block in receipt] == [block["block_id"] for block in second]
    reused = [block["reused"] == block["tokens"] for block in receipt[: len(first)]]
    assert reused == [True] * len(first)


@pytest.mark.req("EVT-11", "EVT-12", "SRV-5")
@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_know_what_happened(service: Service, key: str, stream: bool) -> None:
    happened(service.url, key, "1122")
    session = session_of(service, key)
    client = service.client(key)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    contexts = []
    for question in ("and?", ""):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages,
            max_tokens=6,
            temperature=0,
            stream=stream,
            extra_headers={"Huginn-Session": session},
        )
        answer = raw.parse()
        contexts.append(raw.headers["huginn-context"])
        id, text = _heard(answer) if stream else (answer.id, answer.choices[0].message.content)
        said = {"role": "assistant", "content": text}
        messages += [said, {"role": "user", "content": question}]
    assert_builds_on(service, contexts, id, key)
    assert [turn["state"] for turn in turns(service, session, key)] == ["finished"] * 2


def _heard(stream: Any) -> tuple[str, str]:
    """The id of a streamed completion, and its text."""
    chunks = list(stream)
    (id,) = {chunk.id for chunk in chunks}
    deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    return id, "".join(deltas)


@pytest.mark.req("EVT-11", "EVT-12", "SRV-5")
@pytest.mark.parametrize("stream", [False, True])
def test_responses_know_what_happened(service: Service, key: str, stream: bool) -> None:
    happened(service.url, key, "1122")
    client = service.client(key)
    made = []
    for previous in range(2):
        fields: dict[str, Any] = {
            "model": MODEL,
            "input": QUESTION if not previous else "and?",
            "max_output_tokens": 6,
            "temperature": 0,
            "previous_response_id": made[-1].id if made else openai.omit,
        }
        if stream:
            *_, last = client.responses.create(**fields, stream=True)
            made.append(last.response)
        else:
            made.append(client.responses.create(**fields))
    contexts = [response.model_extra["huginn"]["context_id"] for response in made]
    assert_builds_on(service, contexts, made[-1].id, key)


@pytest.mark.req("EVT-11", "EVT-12", "SRV-5")
def test_the_terminal_knows_what_happened(service: Service, key: str) -> None:
    happened(service.url, key, "1122")
    words = ["chat", "--max-tokens", "6", "--temperature", "0"]
    said = subprocess.run(
        [sys.executable, "-m", "actors.cli.main", *words],
        env={**service.environment(), "HUGINN_API_KEY": key},
        input=f"{QUESTION}\nand?\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    (session,) = service.get("/huginn/v1/sessions", key).json()["data"]
    listed = turns(service, session["id"], key)
    contexts = [turn["context_id"] for turn in listed]
    assert_builds_on(service, contexts, listed[-1]["response"], key)


@pytest.mark.req("ASM-6", "KV-10")
def test_an_answer_is_gone_on_from_as_it_was_generated(service: Service, key: str) -> None:
    """Also where its text has other tokens than those that were generated."""
    client = service.client(key)
    for seed in range(20):
        first = client.responses.create(
            model=MODEL,
            input="hi",
            max_output_tokens=24,
            temperature=1.5,
            extra_body={"seed": seed},
        )
        context = first.model_extra["huginn"]["context_id"]  # type: ignore[index]
        second = _settled_turn(client, service, first.id, key)
        spent = second["blocks"]
        shown = service.get(f"/huginn/v1/contexts/{second['context_id']}?tokens=1", key).json()
        kept = shown["blocks"][1]
        assert kept["representation"] == "exact-tokens"
        assert [block["reused"] == block["tokens"] for block in spent[:2]] == [True, True]
        # What was computed stands in front of what is new, token by token.
        asked = service.get(f"/huginn/v1/contexts/{context}?tokens=1", key).json()["tokens"]
        assert shown["tokens"][: len(asked)] == asked
        again = service.post(
            "/v1/tokenize", {"model": MODEL, "content": kept["content"].strip()}, key
        ).json()["tokens"]
        start = len(asked)
        generated = shown["tokens"][start : start + spent[1]["tokens"]]
        assert len(generated) == spent[1]["tokens"]
        if generated[-len(again) :] != again:
            return
    raise AssertionError("no answer had other tokens than its text has")


def _settled_turn(client: OpenAI, service: Service, first: str, key: str) -> dict[str, Any]:
    """The receipt of a turn on `first`, taken once the answer before has settled off the path."""
    for _ in range(50):
        second = client.responses.create(
            model=MODEL,
            input="and?",
            max_output_tokens=2,
            temperature=0,
            previous_response_id=first,
        )
        receipt = settled_receipt(service, second.id, key)
        if receipt["blocks"][1]["reused"] == receipt["blocks"][1]["tokens"]:
            return receipt
    raise AssertionError("the answer before never settled")


def test_a_key_is_answered_as_it_was(service: Service, key: str) -> None:
    """Of both dialects, all but the times; also by a service that was killed and started again."""
    session = session_of(service, key)
    with service.client(key) as client:
        first = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=3)
        told = [_response_again(client, first.id), _chat_again(client, session)]
        assert (told[0]["status"], told[0]["usage"]["output_tokens"]) == ("incomplete", 3)
        assert told[1]["choices"][0]["finish_reason"] == "length"
        assert [_response_again(client, first.id), _chat_again(client, session)] == told
        with pytest.raises(openai.ConflictError, match="another input"):
            _response_again(client, first.id, max_output_tokens=4)
        with pytest.raises(openai.ConflictError, match="another input"):
            _chat_again(client, session, "something else")
    service.kill()
    service.start()
    with service.client(key) as client:
        assert [_response_again(client, first.id), _chat_again(client, session)] == told
    assert len(turns(service, session, key)) == 1


def _response_again(client: OpenAI, previous: str, **more: Any) -> dict[str, Any]:
    """A response with the same key each time, less its times."""
    fields: dict[str, Any] = {"max_output_tokens": 3, "temperature": 1, **more}
    made = client.responses.create(
        model=MODEL,
        input="and?",
        previous_response_id=previous,
        extra_headers={"Idempotency-Key": "response"},
        **fields,
    )
    return made.model_dump() | {"created_at": 0, "completed_at": 0}


def _chat_again(client: OpenAI, session: str, content: str = QUESTION) -> dict[str, Any]:
    """A chat with the same key each time, less its time."""
    made = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": content}],
        max_tokens=3,
        temperature=1,
        extra_headers={"Huginn-Session": session, "Idempotency-Key": "chat"},
    )
    return made.model_dump() | {"created": 0}


@pytest.mark.req("EVT-5")
def test_two_clients_lose_no_turn(service: Service, key: str) -> None:
    session = session_of(service, key)

    def post(number: int) -> int:
        body = {"model": MODEL, "input": f"turn {number}", "max_output_tokens": 4}
        asked_ns = time.monotonic_ns()
        answer = service.post("/v1/responses", body | {"huginn": {"session": session}}, key)
        waited_ns = time.monotonic_ns() - asked_ns
        # Refused is only who waited as long as the service lets one, where it is that slow.
        assert answer.status_code == 200 or waited_ns >= Limits().turn_wait_ns, answer.text
        return answer.status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(post, range(6)))
    assert set(statuses) <= {200, 409}
    listed = turns(service, session, key)
    assert [turn["state"] for turn in listed] == ["finished"] * statuses.count(200)
    # One after the other: each goes on from the one before, and the last prompt holds them all.
    assert [turn["parent"] for turn in listed[1:]] == [turn["id"] for turn in listed[:-1]]
    said = [each["content"] for each in blocks(service, listed[-1]["context_id"], key)]
    assert sum(text.startswith("turn ") for text in said) == len(listed)


@pytest.mark.req("EVT-5")
def test_a_client_that_goes_is_told_again(service: Service, key: str) -> None:
    happened(service.url, key, "1122")
    client = service.client(key)
    session = _broken_off(service, client, key, lambda stream: stream.close())
    _assert_carried(service, client, session, key)


@pytest.mark.req("EVT-5")
def test_what_a_killed_worker_was_told_is_told_again(service: Service, key: str) -> None:
    """`kill -9` in the middle of an answer."""
    happened(service.url, key, "1122")
    client = service.client(key)
    kinds: list[str] = []

    def kill(stream: Any) -> None:
        kinds.clear()
        os.kill(service.worker_pid(), signal.SIGKILL)
        with contextlib.suppress(openai.APIError):
            kinds.extend(event.type for event in stream)
        service.wait_until_ready()

    session = _broken_off(service, client, key, kill)
    assert "response.completed" not in kinds
    _assert_carried(service, client, session, key)


def _broken_off(service: Service, client: OpenAI, key: str, act: Callable[[Any], None]) -> str:
    """A session whose only turn was ended by `act` while its answer came. Another one is tried for
    an answer that the model had ended by itself."""
    for _ in range(10):
        session = session_of(service, key)
        stream = client.responses.create(
            model=MODEL,
            input=QUESTION,
            max_output_tokens=1200,
            temperature=0,
            stream=True,
            extra_body={"huginn": {"session": session}},
        )
        for event in stream:
            if event.type == "response.output_text.delta":
                act(stream)
                break
        deadline = time.monotonic() + 60
        while (state := turns(service, session, key)[0]["state"]) == "open":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if state == "unfinished":
            return session
    raise AssertionError("every answer ended by itself")


def _assert_carried(service: Service, client: OpenAI, session: str, key: str) -> None:
    """The turn before was given up: the next holds what it was told, once, and not its answer."""
    made = client.responses.create(
        model=MODEL,
        input="and?",
        max_output_tokens=4,
        extra_body={"huginn": {"session": session}},
    )
    listed = turns(service, session, key)
    assert [turn["state"] for turn in listed] == ["unfinished", "finished"]
    context = made.model_extra["huginn"]["context_id"]  # type: ignore[index]
    said = blocks(service, context, key)
    assert told(said) == [0]
    assert [block["type"] for block in said] == ["event reminder", "user turn"]
