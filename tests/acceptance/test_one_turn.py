"""One real turn through every room, as a user sees it: the default model, over HTTP.

A history of about 2,000 tokens is built by chatting; its next turn prefills only what is new; the
same messages sent to a fresh process that never saw them give the same context, the same tokens,
the same state and the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from profiles import loader, weights
from tests.installations import Service
from tests.model_fixtures import real

MODEL = "gemma-3-270m"
PROFILE = "gemma3-270m-exact"
pytestmark = [pytest.mark.model, pytest.mark.slow]

FACTS = [
    "The library of the town keeps its oldest maps in a cold room below the reading hall.",
    "A carpenter measured the long table twice and cut the oak boards on a Tuesday morning.",
    "Ships from the north brought salted fish, rope, tar, and letters that nobody had opened.",
    "The bridge was painted green because the mayor had bought too much paint for the benches.",
    "In winter the children walked across the frozen pond to the bakery on the other side.",
    "An old clock in the station ran four minutes late, and so did every train in the valley.",
]


def home_with_weights(home: Path) -> Path:
    """A data directory that uses the verified copy of the default model's weights."""
    path, _ = real()
    target = weights.weights_path(loader.load(PROFILE), home)
    home.mkdir(mode=0o700)
    target.parent.mkdir(mode=0o700)
    target.symlink_to(path)
    return home


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = home_with_weights(tmp_path_factory.mktemp("one-turn") / "home")
    with Service(home, profile=PROFILE) as running:
        yield running


def chat(service: Service, messages: list[dict[str, str]], **more: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **more}
    answer = service.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer


def long_history() -> list[dict[str, str]]:
    """About 2,000 tokens in 30 messages: user and assistant in turn."""
    messages = []
    for index in range(15):
        facts = " ".join(FACTS[(index + offset) % len(FACTS)] for offset in range(5))
        messages.append({"role": "user", "content": f"Note {index}. {facts} What is it about?"})
        messages.append(
            {"role": "assistant", "content": f"Note {index} is about a town. {FACTS[index % 6]}"}
        )
    return messages


def test_the_default_model_knows_the_capital_of_france(service: Service) -> None:
    client = service.client()
    assert [model.id for model in client.models.list()] == [MODEL]
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=20,
    )
    assert "Paris" in (answer.choices[0].message.content or "")


@pytest.mark.req("SEQ-2", "KV-2", "KV-5", "KV-8")
def test_a_second_turn_prefills_what_is_new_and_equals_a_cold_process(
    service: Service, tmp_path: Path
) -> None:
    history = [*long_history(), {"role": "user", "content": "What is the capital of France?"}]
    first = chat(service, history).json()
    before = service.receipt(first["id"])
    assert before["prompt_tokens"] > 1_900
    said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    turn = [*history, said, {"role": "user", "content": "And which river runs through it?"}]
    tokens = service.post("/v1/tokenize", {"model": MODEL, "messages": turn}).json()

    warm_answer = _settled_turn(service, turn, len(history))
    warm = service.receipt(warm_answer.json()["id"])
    new = warm["blocks"][-1]["tokens"]
    assert [block["reused"] == block["tokens"] for block in warm["blocks"][:-1]] == [True] * (
        len(turn) - 1
    )
    # The new block's own tokens and the opener of the answer; nothing else.
    assert new <= warm["prefilled_tokens"] <= new + 8
    assert warm["reused_tokens"] + warm["prefilled_tokens"] == warm["prompt_tokens"]

    with Service(home_with_weights(tmp_path / "fresh"), profile=PROFILE) as fresh:
        cold_answer = chat(fresh, turn)
        cold = fresh.receipt(cold_answer.json()["id"])
        cold_tokens = fresh.post("/v1/tokenize", {"model": MODEL, "messages": turn}).json()
    assert cold["reused_tokens"] == 0
    assert cold_tokens == tokens
    assert cold_answer.headers["Huginn-Context"] == warm_answer.headers["Huginn-Context"]
    assert tokens["context_id"] == warm_answer.headers["Huginn-Context"]
    assert cold["state_digest"] == warm["state_digest"]
    assert (
        cold_answer.json()["choices"][0]["message"] == warm_answer.json()["choices"][0]["message"]
    )


def _settled_turn(service: Service, turn: list[dict[str, str]], answered: int) -> httpx.Response:
    """The turn's answer, asked again until the answer before it has settled off the path."""
    for _ in range(20):
        answer = chat(service, turn)
        block = service.receipt(answer.json()["id"])["blocks"][answered]
        if block["reused"] == block["tokens"]:
            return answer
    raise AssertionError("the answer before never settled")


@pytest.mark.req("SEQ-7", "KV-5")
def test_an_edit_in_the_middle_keeps_everything_before_it(service: Service) -> None:
    history = [*long_history(), {"role": "user", "content": "Say it in one word."}]
    whole = chat(service, history, max_tokens=1)
    edited = [dict(message) for message in history]
    middle = 12
    edited[middle]["content"] = "Note 6 is about something else. What is it about?"
    answer = chat(service, edited, max_tokens=1)
    blocks = service.receipt(answer.json()["id"])["blocks"]
    assert [block["reused"] == block["tokens"] for block in blocks[:middle]] == [True] * middle
    assert [block["reused"] for block in blocks[middle:]] == [0] * (len(blocks) - middle)

    compared = service.post(
        "/huginn/v1/contexts/diff",
        {"a": whole.headers["Huginn-Context"], "b": answer.headers["Huginn-Context"]},
    ).json()
    assert compared["equal_blocks"] == middle
    assert compared["first_difference"]["index"] == middle
    assert compared["first_difference"]["reason"] == "content"
    reused = sum(block["tokens"] for block in blocks[:middle])
    assert compared["first_difference"]["token_index"] >= reused


@pytest.mark.req("AUT-3", "AUT-7")
def test_whoever_may_not_know_is_told_nothing(service: Service) -> None:
    context = chat(service, [{"role": "user", "content": "My secret is 7."}], max_tokens=1)
    known = context.headers["Huginn-Context"]
    unknown = known[:-6] + "aaaaaq"
    response = context.json()["id"]
    other = service.post("/huginn/v1/keys", {"principal": "other"}).json()["key"]
    assert service.get(f"/huginn/v1/contexts/{known}").status_code == 200

    for key in (other, "hg-wrong-key-that-nobody-has", ""):
        seen = [
            _plain(service.get(f"/huginn/v1/{path}", key or "none"))
            for path in (f"contexts/{known}", f"contexts/{unknown}", "contexts/ctx:nonsense")
        ]
        assert seen[0] == seen[1] == seen[2]
        assert seen[0][0] in (401, 404)
        assert "7" not in seen[0][1].replace("/", "")
        pairs = [(known, known), (unknown, known), (unknown, unknown)]
        differences = [
            _plain(service.post("/huginn/v1/contexts/diff", {"a": a, "b": b}, key or "none"))
            for a, b in pairs
        ]
        assert differences[0] == differences[1] == differences[2]
        receipts = [
            _plain(service.get(f"/huginn/v1/receipts/{name}", key or "none"))
            for name in (response, "chatcmpl-unknown")
        ]
        assert receipts[0] == receipts[1]


def _plain(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


@pytest.mark.req("KV-7", "KV-2")
def test_what_the_neighbours_do_changes_no_bit(service: Service) -> None:
    """The same conversation alone and beside three others: same state, same answer."""
    conversation = [{"role": "user", "content": FACTS[0] + " " + FACTS[1] + " What is it about?"}]
    alone = chat(service, conversation, max_tokens=24).json()
    digest = service.receipt(alone["id"])["state_digest"]
    with httpx.Client(timeout=300) as client:
        neighbours = [
            client.build_request(
                "POST",
                f"{service.url}/v1/chat/completions",
                json={
                    "model": MODEL,
                    "messages": [{"role": "user", "content": FACTS[index] * 3}],
                    "max_tokens": 60,
                    "stream": True,
                },
                headers={"Authorization": f"Bearer {service.key}"},
            )
            for index in range(2, 4)
        ]
        streams = [client.send(request, stream=True) for request in neighbours]
        beside = chat(service, conversation, max_tokens=24).json()
        for stream in streams:
            stream.close()
    assert service.receipt(beside["id"])["state_digest"] == digest
    assert beside["choices"][0]["message"] == alone["choices"][0]["message"]
