"""The checks of the machine, each made to fail where a test can make it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from actors.cli.checks import Finding, examine
from actors.cli.machine_checks import machine_checks
from actors.config import load


def found(home: Path, name: str, **flags: object) -> Finding:
    checks = machine_checks(load({"home": str(home), **flags}, {}).config)
    (finding,) = examine([check for check in checks if check[0] == name])
    assert finding.name == name
    return finding


def test_this_machine_runs_these_tests(home: Path) -> None:
    config = load({"home": str(home)}, {}).config
    findings = examine(machine_checks(config))
    assert [each.name for each in findings if each.state == "fail"] == []
    assert all(each.detail for each in findings)
    assert all(each.cure for each in findings if each.state != "ok")


def test_a_clock_that_went_back(home: Path) -> None:
    assert found(home, "clock").state == "ok"
    (home / "rooms").mkdir()
    path = home / "rooms" / "ropes.sqlite"
    path.touch()
    ahead = time.time() + 3600
    os.utime(path, (ahead, ahead))
    finding = found(home, "clock")
    assert finding.state == "fail"
    assert "behind" in finding.detail


def test_an_open_data_directory(home: Path, tmp_path: Path) -> None:
    assert found(home, "data directory").state == "ok"
    home.chmod(0o750)
    assert found(home, "data directory").cure == f"chmod 700 {home}"
    assert found(tmp_path / "not" / "yet", "data directory").state == "ok"
    assert found(tmp_path / "not" / "yet", "disk").state in ("ok", "warn")


def test_ray_without_its_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    finding = found(home, "ray")
    assert (finding.state, "RAY_AUTH_MODE=disabled" in finding.detail) == ("warn", True)


def test_an_open_token_of_ray(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found(home, "ray token").state == "ok"
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("secret")
    token.chmod(0o644)
    assert found(home, "ray token").cure == f"chmod 600 {token}"
    token.chmod(0o600)
    assert found(home, "ray token").state == "ok"


def test_shared_memory_matters_to_ray_alone(home: Path) -> None:
    assert found(home, "shared memory", shell="embedded").detail == "not needed here"
    assert found(home, "shared memory", shell="ray").state in ("ok", "warn")
