"""An erasure in a real service, and `kill -9` of everything in the middle of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from store.blobs import BlobFiles
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.erasure_house import texts
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
PATH = "/huginn/v1/erasures"
SECRET = "alices-secret"


def fsck(home: Path, what: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actors.cli", "fsck", "--erased", what, "--json", *more],
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


def with_large_objects(home: Path) -> Path:
    """`home`, where alice has what is too large for a row, besides what she will say."""
    store = SqliteObjectStore(Database(home / "rooms" / "ropes.sqlite"), BlobFiles(home / "blobs"))
    store.put_many("home/alice/files", texts(SECRET, 40, size=400_000))
    store.close()
    return home


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
@pytest.mark.parametrize("rooms", [1, 5])
def test_a_domain_is_erased_whenever_everything_dies(tmp_path: Path, rooms: int) -> None:
    home = with_large_objects(tiny_home(tmp_path / "home"))
    service = Service(home)
    with service:
        used(service)
        assert len([path for path in marked(home) if "blobs" in path.parts]) == 40
        body = {"target": "domain", "name": "alice"}
        asking = threading.Thread(target=lambda: _quietly(service, body), daemon=True)
        asking.start()
        deadline = time.monotonic() + 60
        # As soon as so many have done it; the next is on its way, after five the object store.
        while not (rows := service.get(PATH).json()["data"]) or len(rows[0]["rooms"]) < rooms:
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
    # Work that went on may leave bytes of its own in free space, and nothing else is left.
    problems = json.loads(fsck(home, "alice").stdout)["problems"]
    assert [each for each in problems if each["kind"] != "dead space"] == []
    checked = fsck(home, "alice", "--repair")
    assert checked.returncode == 0, checked.stdout
    assert marked(home) == []


def _quietly(service: Service, body: dict[str, str]) -> None:
    try:
        service.post(PATH, body)
    except Exception:
        # The service was killed under it: that is what the test is about.
        return
