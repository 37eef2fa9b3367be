"""`huginn erase` and `huginn retention`, against a gateway with a real authority room."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.ids import TextId
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


@pytest.mark.req("AUT-8")
def test_an_erasure_needs_a_yes_and_is_shown(
    service: Service, home: Path, newcomer: tuple[str, str]
) -> None:
    operator, name = reach(service), newcomer[0]
    before = answered("erase", "ls", home=home, **operator)
    said = refused("erase", "domain", name, home=home, code="unsure", **operator)
    assert "say --yes" in said
    assert answered("erase", "ls", home=home, **operator) == before
    made = answered("erase", "domain", name, "--yes", home=home, **operator)
    assert (made["target"], made["name"], made["state"]) == ("domain", name, "open")
    assert answered("erase", "show", made["id"], home=home, **operator)["id"] == made["id"]
    assert made["id"] in huginn("erase", "ls", home=home, **operator).output
    told = huginn("erase", "show", made["id"], home=home, **operator).output
    assert told.startswith(f"{made['id']} waits: gateway: ")
    refused("erase", "show", "erasure-none", home=home, code="not_found", **operator)


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    "words",
    [
        ("principal", "NAME"),
        ("namespace", "home/NAME/old"),
        ("object", str(TextId.of(b"x")), "--namespace", "home/NAME"),
    ],
)
def test_every_target_has_a_verb(
    service: Service, home: Path, words: tuple[str, ...], newcomer: tuple[str, str]
) -> None:
    words = tuple(word.replace("NAME", newcomer[0]) for word in words)
    made = answered("erase", *words, "--yes", home=home, **reach(service))
    assert made["target"] == words[0]


@pytest.mark.req("AUT-4")
def test_retention_is_set_and_listed(service: Service, home: Path) -> None:
    operator = reach(service)
    made = answered("retention", "set", "client", "60", home=home, **operator)
    assert made == {"domain": "client", "policy": "bounded", "seconds": 60}
    rows = answered("retention", "ls", home=home, **operator)
    assert [row["domain"] for row in rows] == ["*", "client"]
    assert "86400" in huginn("retention", "ls", home=home, **operator).output
    said = huginn("retention", "set", "client", "immediate", home=home, **operator).output
    assert said == "client: immediate 0 s\n"
    refused("retention", "set", "client", "soon", home=home, code="usage", exit_code=2, **operator)
