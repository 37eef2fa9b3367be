"""A shell from start to end: announced when it is ready, gone when it is told to."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from actors.cli.asked import Failure
from actors.cli.client import Client
from actors.cli.processes import descendants
from actors.cli.service_file import here
from actors.cli.serving import serve
from actors.config import Config, load


def configured(home: Path, **more: object) -> Config:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = {"home": str(home), "port": port, "shell": "embedded", "profile": "tiny-gemma"}
    return load({**flags, **more}, {}).config


def unforced(path: Path) -> NoReturn:
    pytest.fail("nobody asked twice")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_then_told_to_stop(tiny_home: Path, number: signal.Signals) -> None:
    config = configured(tiny_home)
    service = here(config.host, config.port, config.shell, config.profile)
    seen: list[Any] = []

    def tell(health: dict[str, Any]) -> None:
        seen.append((health, descendants(os.getpid())))
        os.kill(os.getpid(), number)

    serve(config, service, tell, force=unforced)
    ((health, processes),) = seen
    assert health["models"] == ["tiny-gemma"]
    (worker,) = [each for each in processes if "worker_process" in each.command]
    assert worker.pid not in {each.pid for each in descendants(os.getpid())}
    with pytest.raises(Failure, match="no service answers"):
        Client(service.url).health()
