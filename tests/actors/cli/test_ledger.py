"""`huginn ledger`, against a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach


@pytest.mark.req("AUT-6")
def test_both_ledgers_are_shown(service: Service, home: Path, newcomer: tuple[str, str]) -> None:
    operator, (name, key) = reach(service), newcomer
    answered("run", "hello", home=home, **operator)
    answered("run", "hello", home=home, **reach(service, key))
    rows = answered("ledger", home=home, **operator)
    assert [row["answers"] for row in rows if row["principal"] == name] == [1]
    assert "operator" in huginn("ledger", home=home, **operator).output
    assert "prompt_tokens" in huginn("ledger", home=home, **operator).output
    (use,) = answered("ledger", "--physical", home=home, **operator)
    assert use["device_ns"] == 5
    assert "device_ns" in huginn("ledger", "--physical", home=home, **operator).output
