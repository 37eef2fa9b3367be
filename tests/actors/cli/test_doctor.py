"""`huginn doctor` as a whole."""

from __future__ import annotations

import json
from pathlib import Path

from tests.huginn import answered, huginn


def test_a_machine_without_a_service(tiny_home: Path) -> None:
    variables = {"HUGINN_PROFILE": "tiny-gemma", "HUGINN_PORT": "0", "HUGINN_SHELL": "embedded"}
    document = answered("doctor", home=tiny_home, **variables)
    state = {each["name"]: each["state"] for each in document["checks"]}
    assert document["ok"]
    assert state["model"] == state["tokenizer"] == state["template"] == state["libllama"] == "ok"
    assert state["service"] == "ok"
    people = huginn("doctor", home=tiny_home, **variables).stdout
    assert all(name in people for name in state)


def test_what_fails_has_a_cure_and_exits_1(tiny_home: Path) -> None:
    tiny_home.chmod(0o755)
    (tiny_home / "models" / "tiny-gemma.gguf").write_bytes(b"not the model")
    variables = {"HUGINN_PROFILE": "tiny-gemma", "HUGINN_PORT": "0"}
    result = huginn("doctor", "--json", home=tiny_home, **variables)
    assert result.exit_code == 1
    checks = {each["name"]: each for each in json.loads(result.stdout)["checks"]}
    assert checks["data directory"]["cure"] == f"chmod 700 {tiny_home}"
    assert checks["model"]["state"] == "fail"
    assert "models rm tiny-gemma" in checks["model"]["cure"]
    assert checks["tokenizer"]["state"] == checks["template"]["state"] == "warn"
