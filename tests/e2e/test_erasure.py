"""An erasure in a real service, and `kill -9` of everything in the middle of one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
PATH = "/huginn/v1/erasures"
SECRET = "alices-secret"


def fsck(home: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actors.cli", "fsck", "--erased", what, "--repair", "--json"],
        env={**os.environ, "HUGINN_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def marked(home: Path) -> list[Path]:
    files = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".gguf"]
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def used(service: Service) -> None:
    """Alice has talked, and asked for a response of a session."""
    key = service.post("/huginn/v1/keys", {"principal": "alice"}).json()["key"]
    for number in range(3):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{SECRET} {number} " + "raven " * 20}],
            "max_tokens": 4,
        }
        assert service.post("/v1/chat/completions", body, key).status_code == 200
    body = {"model": MODEL, "input": f"{SECRET}: go on", "max_output_tokens": 4}
    assert service.post("/v1/responses", body, key).status_code == 200


def finished(service: Service, seconds: float = 60) -> dict[str, Any]:
    """The one erasure, once it is done."""
    deadline = time.monotonic() + seconds
    while True:
        (row,) = service.get(PATH).json()["data"]
        if row["state"] == "done":
            return dict(row)
        assert time.monotonic() < deadline, row
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.req("AUT-8")
def test_a_domain_is_erased_whenever_everything_dies(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    service = Service(home)
    with service:
        used(service)
        assert marked(home)
        body = {"target": "domain", "name": "alice"}
        asking = threading.Thread(target=lambda: _quietly(service, body), daemon=True)
        asking.start()
        deadline = time.monotonic() + 60
        # As soon as the first room has done it; the others are on their way.
        while not (rows := service.get(PATH).json()["data"]) or not rows[0]["rooms"]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        service.kill()
        asking.join(60)
    with service:
        row = finished(service)
        assert set(row["rooms"]) == {
            *("gateway", "events", "assembler", "worker", "muninn", "ropes", "authority")
        }
        assert marked(home) == []
    checked = fsck(home, "alice")
    assert checked.returncode == 0, checked.stdout
    assert marked(home) == []


def _quietly(service: Service, body: dict[str, str]) -> None:
    try:
        service.post(PATH, body)
    except Exception:
        # The service was killed under it: that is what the test is about.
        return
