"""Events for tests of what a model is told: a source, and something that happens in it."""

from __future__ import annotations

from actors.cli.client import Client
from actors.gateway.caller import Caller
from actors.gateway.sessions import ask_events
from protocol import cbor
from protocol.messages.events import AddSource, Appended, AppendEvents, NewEvent, SourceRow
from tests.fake_rooms import Service

SLED = "sled"
QUESTION = "what's going on?"


def caller_of(service: Service, key: str | None = None) -> Caller:
    """The operator, or whose key it is."""
    return service.gateway.authenticate(f"Bearer {key or service.operator_key}", "req-test")


async def happen(
    service: Service, *subjects: str, source: str = SLED, caller: Caller | None = None
) -> None:
    """One merge for each of `subjects`, appended to `source` of the caller's namespace."""
    caller = caller or caller_of(service)
    namespace = caller.namespace
    await ask_events(caller, "add_source", AddSource(namespace=namespace, name=source), SourceRow)
    body = cbor.encode({"merge_commit": "4b825dc6"})
    events = [
        NewEvent(kind="MergeSucceeded", subject=subject, body=body, before="qa", after="merged")
        for subject in subjects
    ]
    ask = AppendEvents(namespace=namespace, source=source, events=events)
    await ask_events(caller, "append", ask, Appended)


def happened(base_url: str, key: str, *subjects: str, source: str = SLED) -> None:
    """The same over HTTP, of a service that runs elsewhere."""
    client = Client(base_url, key)
    client.post("/huginn/v1/sources", {"name": source})
    for subject in subjects:
        event = {
            "kind": "MergeSucceeded",
            "subject": subject,
            "body": {"merge_commit": "4b825dc6"},
            "from": "qa",
            "to": "merged",
        }
        client.post(f"/huginn/v1/sources/{source}/events", event)


def newcomer(service: Service, name: str) -> str:
    """The key of a new principal, to whom nothing that happened to others is known."""
    made = Client(service.base_url, service.operator_key).post(
        "/huginn/v1/keys", {"principal": name}
    )
    return str(made["key"])


def prompt_text(service: Service, index: int = -1) -> str:
    """The prompt that the worker was asked, as text; control ids are silent."""
    ask = service.worker.asked[index]
    packed = b"".join(part.head + part.content for part in ask.segments) + ask.opener
    ids = [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]
    return bytes(token for token in ids if token < 256).decode("utf-8")


def prompt_types(service: Service, index: int = -1) -> list[str]:
    """What each block of that prompt is."""
    return [part.type for part in service.worker.asked[index].segments]
