"""Streamed answers, put together again."""

from __future__ import annotations

import pytest

from actors.cli.answers import (
    CHAT,
    COMPLETE,
    Answer,
    ask,
    respond,
    reuse_line,
    served_model,
)
from actors.cli.asked import Failure
from actors.cli.client import ApiFailure, Client
from tests.fake_rooms import Service
from tests.scripted_worker import ANSWER, Script


def body(**more: object) -> dict[str, object]:
    question = [{"role": "user", "content": "hi"}]
    return {"model": "raven", "messages": question, "temperature": 0, **more}


def test_an_answer_is_whole(service: Service) -> None:
    client = Client(service.base_url, service.operator_key)
    pieces: list[str] = []
    answer = ask(client, CHAT, body(), pieces.append)
    assert "".join(pieces) == answer.text == ANSWER
    assert len(pieces) > 1
    assert answer.finish == "stop"
    assert answer.receipt is not None
    assert answer.usage["prompt_tokens"] == answer.receipt["prompt_tokens"]
    document = answer.document()
    assert document["context_id"].startswith("ctx:")
    assert client.get(f"/huginn/v1/receipts/{answer.id}")["response_id"] == answer.id


def test_a_key_without_telemetry_gets_no_receipt(service: Service) -> None:
    answer = ask(Client(service.base_url, service.client_key), CHAT, body(), lambda _: None)
    assert answer.receipt is None
    assert answer.text == ANSWER


def test_text_is_completed_too(service: Service) -> None:
    client = Client(service.base_url, service.operator_key)
    asked = {"model": "raven", "prompt": "hi", "temperature": 0, "max_tokens": 5}
    answer = ask(client, COMPLETE, asked, lambda _: None)
    assert (answer.text, answer.finish, answer.context) == (ANSWER[:5], "length", None)


def test_a_response_says_where_it_is_kept(service: Service) -> None:
    client = Client(service.base_url, service.operator_key)
    pieces: list[str] = []
    first, second, third = Answer(), Answer(), Answer()
    asked = {"model": "raven", "input": "hi", "temperature": 0}
    respond(client, asked, first, pieces.append)
    assert "".join(pieces) == first.text == ANSWER
    assert (first.finish, first.usage["output_tokens"]) == ("stop", len(ANSWER.encode()))
    assert first.receipt is not None
    assert first.context is not None
    more = {**asked, "huginn": {"session": first.session}, "max_output_tokens": 5}
    respond(client, more, second, pieces.append)
    assert (second.session, second.finish) == (first.session, "length")
    assert second.document()["turn"] == second.turn != first.turn
    service.worker.script = Script(break_after=2, pace_s=0.1)
    with pytest.raises(ApiFailure, match="ran into a wall"):
        respond(client, more, third, pieces.append)
    assert third.session == first.session


def test_leaving_stops_the_answer(service: Service) -> None:
    service.worker.script = Script(pace_s=0.05)
    early = service.worker.stopped_early

    def stop(piece: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(Client(service.base_url, service.operator_key), CHAT, body(), stop)
    for _ in range(100):
        if service.worker.stopped_early > early:
            break
        # Any request gives the service a chance to notice.
        Client(service.base_url).health()
    assert service.worker.stopped_early == early + 1


def test_the_model_that_is_asked(service: Service) -> None:
    client = Client(service.base_url, service.operator_key)
    assert served_model(client, None) == "raven"
    assert served_model(client, "crow") == "crow"


def test_no_model_for_this_key(service: Service) -> None:
    operator = Client(service.base_url, service.operator_key)
    asked = {"principal": "reader", "rights": ["read"]}
    key = operator.post("/huginn/v1/keys", asked)["key"]
    with pytest.raises(Failure, match="no model"):
        served_model(Client(service.base_url, key), None)


def test_the_line_of_a_receipt() -> None:
    receipt = {
        "reused_tokens": 20,
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "ttft_ms": 12.6,
    }
    line = "reused 20 of 30 prompt tokens, 4 generated, first after 13 ms"
    assert reuse_line(receipt) == line
