"""The HTTP client, against a real gateway and against peers that misbehave."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from actors.cli.asked import Asked, Failure
from actors.cli.client import ApiFailure, Client, base_url, connect, segment
from tests.fake_rooms import Service
from tests.huginn import peer
from tests.scripted_worker import ANSWER, Script

BODY = {
    "model": "raven",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
    "stream": True,
}


def client_of(service: Service) -> Client:
    return Client(service.base_url, service.operator_key)


def test_json_both_ways(service: Service) -> None:
    client = client_of(service)
    assert client.get("/v1/models")["data"][0]["id"] == "raven"
    assert client.post("/v1/tokenize", {"content": "ab"})["count"] == 2
    status, body = Client(service.base_url).health()
    assert (status, body["status"]) == (200, "ok")


def test_an_error_keeps_its_words_code_and_status(service: Service) -> None:
    with pytest.raises(ApiFailure, match="not served here") as caught:
        client_of(service).get("/v1/models/crow")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    with pytest.raises(ApiFailure) as caught:
        Client(service.base_url, "hg-wrong").delete("/huginn/v1/keys/eve")
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


def test_a_stream_is_its_events(service: Service) -> None:
    with client_of(service).stream("/v1/chat/completions", BODY) as stream:
        assert str(stream.header("Huginn-Context")).startswith("ctx:")
        events = list(stream.events())
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == ANSWER


def test_a_fault_in_a_stream_is_a_failure(service: Service) -> None:
    service.worker.script = Script(break_after=5)
    with (
        client_of(service).stream("/v1/chat/completions", BODY) as stream,
        pytest.raises(ApiFailure, match="ran into a wall"),
    ):
        list(stream.events())


def test_a_refusal_before_a_stream_is_a_failure(service: Service) -> None:
    with (
        pytest.raises(ApiFailure) as caught,
        client_of(service).stream("/v1/chat/completions", {**BODY, "model": "crow"}),
    ):
        pass
    assert caught.value.code == "model_not_found"


def test_a_stream_that_breaks_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    with peer(head + b': ping\n\ndata: {"choices": []}\n\n') as address:
        client = Client(address)
        with (
            client.stream("/", {}) as stream,
            pytest.raises(Failure, match="broke off"),
        ):
            list(stream.events())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not_huginn"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "connection"),
        (b"", "connection"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\n[]", "http_error"),
    ],
)
def test_something_else_that_listens(answer: bytes, code: str) -> None:
    with peer(answer) as address, pytest.raises(Failure) as caught:
        Client(address).get("/v1/models")
    assert caught.value.code == code


def test_nobody_listens() -> None:
    with socket.socket() as held:
        # Bound and not listening: no one else can be given this port meanwhile.
        held.bind(("127.0.0.1", 0))
        with pytest.raises(Failure, match="huginn up") as caught:
            Client(f"http://127.0.0.1:{held.getsockname()[1]}").get("/v1/models")
    assert caught.value.code == "not_running"


def test_where_and_with_what_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGINN_PORT", "HUGINN_HOST", "HUGINN_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    asked = Asked(json=False, home=home)
    assert base_url(asked) == "http://127.0.0.1:7717"
    with pytest.raises(Failure, match="HUGINN_API_KEY"):
        connect(asked)
    (home / "operator.key").write_text("hg-operator\n")
    assert connect(asked).key == "hg-operator"
    monkeypatch.setenv("HUGINN_PORT", "7001")
    monkeypatch.setenv("HUGINN_API_KEY", "hg-mine")
    assert (connect(asked).base, connect(asked).key) == ("http://127.0.0.1:7001", "hg-mine")


def test_segments_cannot_leave_their_place() -> None:
    assert segment("../keys?x=1") == "..%2Fkeys%3Fx%3D1"
