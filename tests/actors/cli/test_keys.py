"""`huginn key`, against a gateway with a real authority."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from actors.cli.keys import not_told_yet
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


def name() -> str:
    return f"p-{uuid.uuid4().hex[:8]}"


def test_a_key_from_made_to_revoked(service: Service, home: Path) -> None:
    principal, operator = name(), reach(service)
    made = answered("key", "new", "--principal", principal, home=home, **operator)
    assert made["principal"] == principal
    own = reach(service, made["key"])
    assert answered("run", "hi", home=home, **own)["content"]
    rows = answered("key", "ls", home=home, **operator)
    row = next(row for row in rows if row["principal"] == principal)
    assert (row["namespace"], row["revoked"]) == (f"home/{principal}", False)
    assert made["key"] not in huginn("key", "ls", home=home, **operator).output
    assert answered("key", "revoke", principal, home=home, **operator)["keys_removed"] == 1
    refused("run", "hi", home=home, code="invalid_api_key", **own)


@pytest.mark.req("AUT-4")
def test_a_person_is_told_where_a_revocation_is_not_in_force() -> None:
    assert not_told_yet({"rooms_waiting": []}) == ""
    assert "NOT YET in force in: ropes, worker." in not_told_yet(
        {"rooms_waiting": ["ropes", "worker"]}
    )


def test_what_a_key_is_asked_to_be(service: Service, home: Path) -> None:
    principal = name()
    words = ["--principal", principal, "--namespace", "shared/a", "--domain", "team"]
    more = ["--right", "read", "--right", "generate", "--lifetime-s", "60"]
    made = answered("key", "new", *words, *more, home=home, **reach(service))
    assert (made["namespace"], made["domain"]) == ("shared/a", "team")
    assert made["rights"] == ["generate", "read"]


def test_a_name_is_given_once(service: Service, home: Path) -> None:
    principal = name()
    answered("key", "new", "--principal", principal, home=home, **reach(service))
    again = ("key", "new", "--principal", principal)
    assert "revoke it first" in refused(*again, home=home, code="conflict", **reach(service))


def test_only_who_administers_makes_keys(service: Service, home: Path) -> None:
    client = reach(service, service.client_key)
    refused("key", "new", "--principal", name(), home=home, code="permission_denied", **client)
