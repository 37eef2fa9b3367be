"""`huginn audit`, against a gateway with a real authority room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


@pytest.mark.req("AUT-8")
def test_the_log_is_shown_and_verified(service: Service, home: Path) -> None:
    operator = reach(service)
    earlier = answered("audit", "verify", home=home, **operator)
    made = answered("key", "new", "--principal", "auditee", home=home, **operator)
    assert made["principal"] == "auditee"
    page = answered("audit", "tail", "-n", "5", home=home, **operator)
    assert len(page["data"]) <= 5
    assert ("grant", "auditee") in [
        (row["entry"]["act"], row["entry"]["subject"]) for row in page["data"]
    ]
    later = answered("audit", "verify", "--head", earlier["head"], home=home, **operator)
    assert later["entries"] > earlier["entries"]
    people = huginn("audit", "tail", home=home, **operator).output
    assert "auditee" in people
    assert "rights advance assemble" in people
    said = huginn("audit", "verify", home=home, **operator).output
    assert said.startswith("the audit log holds: ")


@pytest.mark.req("AUT-8")
def test_a_log_that_does_not_run_through_the_head_is_told(service: Service, home: Path) -> None:
    wrong = "1:" + "0" * 64
    message = refused(
        "audit", "verify", "--head", wrong, home=home, code="audit_broken", **reach(service)
    )
    assert "do not run through head 1" in message
    refused("audit", "verify", "--head", "x", home=home, code="usage", **reach(service))


def test_it_takes_the_operators_key(service: Service, home: Path) -> None:
    client = reach(service, service.client_key)
    for words in (["audit", "tail"], ["audit", "verify"]):
        refused(*words, home=home, code="permission_denied", **client)
