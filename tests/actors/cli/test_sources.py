"""`huginn source` and `huginn emit`, against a gateway with a real events room."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.cli.client import Client
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused, served


@pytest.fixture(scope="module")
def one_service() -> Iterator[Service]:
    """A service of these tests alone: whoever chats on the others' is told nothing of here."""
    with served() as service:
        yield service


@pytest.fixture
def name(service: Service, home: Path) -> str:
    """A source of this test's own."""
    made = f"s-{uuid.uuid4().hex[:8]}"
    answered("source", "add", made, home=home, **reach(service))
    return made


def lines(*words: str, home: Path, **variables: str) -> list[Any]:
    """What `huginn … --json` prints, a value a line."""
    result = huginn(*words, "--json", home=home, **variables)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_source_from_added_to_removed(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    rows = answered("source", "ls", home=home, **at)
    row = next(row for row in rows if row["name"] == name)
    assert (row["state"], row["head"]) == ("local", 0)
    assert name in huginn("source", "ls", home=home, **at).output
    assert answered("source", "add", name, home=home, **at) == row
    assert answered("source", "rm", name, home=home, **at) == {"name": name, "removed": True}
    refused("source", "rm", name, home=home, code="not_found", **at)


def test_an_event_is_told_and_read(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    merged = ("emit", name, "MergeSucceeded", "1122", "--field", "merge_commit=9f3c")
    done = answered(*merged, "--from", "merge", "--to", "done", home=home, **at)
    assert done["seq"] == 1
    passed = ("emit", name, "GatesPassed", "7", "--field", "feature_branch=x")
    answered(*passed, "--field", "commits_ahead=3", home=home, **at)
    found = lines("source", "tail", name, home=home, **at)
    assert found[0]["id"] == done["id"]
    assert [each["body"] for each in found] == [
        {"merge_commit": "9f3c"},
        {"feature_branch": "x", "commits_ahead": 3},
    ]
    shown = huginn("source", "tail", name, home=home, **at).output
    assert f"{name} 1" in shown
    assert "MergeSucceeded  1122  merge → done" in shown
    assert [e["seq"] for e in lines("source", "tail", name, "-n", "1", home=home, **at)] == [1]
    later = lines("source", "tail", name, "--after", "1", home=home, **at)
    assert [each["seq"] for each in later] == [2]


def test_one_key_is_one_event(service: Service, home: Path, name: str) -> None:
    told = ("emit", name, "Close", "7", "--key", "k")
    first = answered(*told, home=home, **reach(service))
    assert answered(*told, home=home, **reach(service)) == first


def test_all_sources_are_read_as_one(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    for subject in "123":
        answered("emit", name, "Close", subject, home=home, **at)
    found = [e for e in lines("source", "tail", home=home, **at) if e["source"] == name]
    assert [each["subject"] for each in found] == ["1", "2", "3"]


def test_a_stream_is_followed(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    answered("emit", name, "Close", "1", home=home, **at)

    def tell() -> None:
        # Not by a verb: the runner of verbs has the process's standard output.
        client = Client(service.base_url, service.operator_key)
        client.post(f"/huginn/v1/sources/{name}/events", {"kind": "Close", "subject": "2"})

    telling = threading.Timer(0.2, tell)
    telling.start()
    found = lines("source", "tail", name, "-f", "-n", "2", home=home, **at)
    telling.join(60)
    assert [each["subject"] for each in found] == ["1", "2"]


def test_what_a_stranger_wrote_stays_on_its_line(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    answered("emit", name, "Close", "a\n\x1b[31mb", home=home, **at)
    shown = huginn("source", "tail", name, home=home, **at).stdout
    assert shown.count("\n") == 1
    assert "\x1b" not in shown


def test_what_is_refused(service: Service, home: Path, name: str) -> None:
    at = reach(service)
    message = refused("emit", name, "MergeSucceeded", "1", home=home, code="invalid_request", **at)
    assert "merge_commit" in message
    refused("emit", "nowhere", "Close", "1", home=home, code="not_found", **at)
    refused("source", "tail", name, "--after", "9", home=home, code="invalid_request", **at)
    bad = ("emit", name, "Close", "1", "--field")
    for field in ("x", "=1", "n:=["):
        refused(*bad, field, home=home, code="usage", exit_code=2, **at)
    message = refused(*bad, "at_s:=1.5", home=home, code="invalid_request", **at)
    assert "decimal string" in message
