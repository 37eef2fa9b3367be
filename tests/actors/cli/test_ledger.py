"""`huginn ledger`, against a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach


@pytest.mark.req("AUT-6")
def test_both_ledgers_are_shown(service: Service, home: Path) -> None:
    operator = reach(service)
    answered("run", "hello", home=home, **operator)
    rows = answered("ledger", home=home, **operator)
    assert [(row["principal"], row["answers"]) for row in rows] == [("operator", 1)]
    assert "operator" in huginn("ledger", home=home, **operator).output
    assert "prompt_tokens" in huginn("ledger", home=home, **operator).output
    (use,) = answered("ledger", "--physical", home=home, **operator)
    assert use["device_ns"] == 5
    assert "device_ns" in huginn("ledger", "--physical", home=home, **operator).output
