"""The checks of the service, against a gateway without a model."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from actors.cli.asked import Asked
from actors.cli.checks import Finding, examine
from actors.cli.service_checks import service_checks
from actors.cli.service_file import Service as Runs
from actors.cli.service_file import here
from actors.config import load
from tests.fake_rooms import Service
from tests.huginn import reach
from tests.scripted_worker import Script


def found(home: Path, service: Runs | None, **flags: object) -> dict[str, Finding]:
    config = load({"home": str(home), **flags}, {}).config
    findings = examine(service_checks(Asked(json=False, home=home), config, service))
    return {each.name: each for each in findings}


def test_a_port_that_is_free_or_not(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = found(home, None, port=server.getsockname()[1])["port"]
    assert (taken.state, "HUGINN_PORT" in str(taken.cure)) == ("fail", True)
    assert found(home, None, port=taken and server_port_free())["port"].state == "ok"


def server_port_free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_service_that_streams(
    service: Service, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in reach(service).items():
        monkeypatch.setenv(name, value)
    runs = here(*service.host_port, "embedded", "raven-exact")
    findings = found(home, runs)
    assert (findings["service"].state, findings["streaming"].state) == ("ok", "ok")
    with socket.create_server(("0.0.0.0", 0)) as wide:
        open_ports = found(home, runs)["open ports"]
        assert open_ports.state == "warn"
        assert str(wide.getsockname()[1]) in open_ports.detail
    assert runs.pid == os.getpid()
    space = service.gateway.ports.space
    with monkeypatch.context() as held:
        # The front room looks for room by itself, and here it would find some.
        held.setattr(space, "found", lambda: None)
        space.lacked("a context")
        full = found(home, runs)["service"]
    assert (full.state, full.cure) == ("warn", "free some space")
    assert "disk" in full.detail
    space.found()
    assert found(home, runs)["service"].state == "ok"
    service.worker.script = Script(break_after=0)
    assert found(home, runs)["streaming"].state == "fail"
