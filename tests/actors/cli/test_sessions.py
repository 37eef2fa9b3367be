"""`huginn session`: what is kept, what one would be told, and forgetting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.happenings import happened, newcomer
from tests.huginn import answered, huginn, reach, refused


def said(home: Path, reached: dict[str, str]) -> str:
    """The session of a chat of two turns."""
    result = huginn("chat", "--json", home=home, given="hi\nand?\n", **reached)
    assert result.exit_code == 0, result.output
    rows = answered("session", "ls", home=home, **reached)
    return str(rows[-1]["id"])


@pytest.mark.req("SRV-3")
def test_sessions_are_listed_shown_and_forgotten(service: Service, home: Path) -> None:
    id = said(home, reach(service))
    shown = answered("session", "show", id, home=home, **reach(service))
    assert (shown["persona"], shown["turns_count"]) == ("assistant", 2)
    assert [turn["state"] for turn in shown["turns"]] == ["finished", "finished"]
    people = huginn("session", "show", id, home=home, **reach(service)).stdout
    assert shown["turns"][1]["response"] in people
    listed = huginn("session", "ls", home=home, **reach(service)).stdout
    assert id in listed
    assert answered("session", "rm", id, home=home, **reach(service))["deleted"] is True
    refused("session", "show", id, home=home, code="not_found", **reach(service))
    refused("session", "rm", id, home=home, code="not_found", **reach(service))
    again = said(home, reach(service))
    people = huginn("session", "rm", again, home=home, **reach(service))
    assert people.stdout == f"forgot session {again}\n"


@pytest.mark.req("SRV-3", "EVT-4")
def test_what_one_would_be_told(service: Service, home: Path) -> None:
    key = newcomer(service, "timmy")
    reached = reach(service, key)
    id = said(home, reached)
    before = answered("session", "show", id, home=home, **reached)["turns"][0]["id"]
    nothing = huginn("session", "events", id, home=home, **reached)
    assert nothing.stdout == "nothing new\n"
    happened(service.base_url, key, "1122")
    for words in ((), ("--parent", before)):
        found = answered("session", "events", id, *words, home=home, **reached)
        assert "1122 merged" in found["text"]
    people = huginn("session", "events", id, home=home, **reached)
    assert "1122 merged" in people.stdout
    refused("session", "rm", id, home=home, code="permission_denied", **reached)
