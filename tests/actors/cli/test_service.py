"""`huginn down`, `status` and `ps`, as far as they go without a whole service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from actors.cli.service_file import FILE, claimed
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, peer, reach, refused

# Ends on SIGTERM as a service does; does not end at all with "stubborn".
_HOLDER = """
import signal, sys, threading
from pathlib import Path
from actors.cli.service_file import announced, claimed, here
home, stop = Path(sys.argv[1]), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: None if sys.argv[2:] else stop.set())
with claimed(home), announced(home, here("127.0.0.1", 1, "embedded", "tiny-gemma")):
    print("held", flush=True)
    while not stop.wait(0.02):
        pass
"""


def holder(home: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(home), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_down_of_nothing_is_done(home: Path) -> None:
    assert answered("down", home=home) == {"stopped": False, "pid": None}


def test_down_ends_the_service_and_waits(home: Path) -> None:
    with holder(home) as other:
        # As a shell would: otherwise it stays a zombie for as long as this test does not look.
        assert answered("down", home=home) == {"stopped": True, "pid": other.pid}
        assert other.wait(60) == 0


def test_down_gives_up_in_words(home: Path) -> None:
    with holder(home, "stubborn") as other:
        said = refused("down", "--wait-s", "1", home=home, code="still_running")
        assert f"kill -9 {other.pid}" in said
        other.kill()


def test_down_ends_no_other_process(home: Path) -> None:
    """A file that names a process of another start: it has that number, and is not the one."""
    with holder(home) as other, subprocess.Popen(["sleep", "60"]) as bystander:
        path = home / FILE
        told = json.loads(path.read_text())
        path.write_text(json.dumps({**told, "pid": bystander.pid, "start_ticks": 1}))
        refused("down", "--wait-s", "1", home=home, code="still_running")
        assert bystander.poll() is None
        bystander.kill()
        other.kill()


def test_down_leaves_other_commands_alone(home: Path) -> None:
    with claimed(home):
        refused("down", home=home, code="busy")


def test_status_of_nothing(home: Path) -> None:
    result = huginn("status", "--json", home=home, HUGINN_PORT="1")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["running"], document["ready"]) == (False, False)
    assert "huginn up" in document["error"]


def test_status_of_one_that_loads(home: Path) -> None:
    body = b'{"status": "loading"}'
    head = f"HTTP/1.1 503 Loading\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with peer(head + body) as address:
        port = address.rpartition(":")[2]
        result = huginn("status", "--json", home=home, HUGINN_PORT=port)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["running"], document["ready"]) == (1, True, False)
    assert document["health"] == {"status": "loading"}


def test_status_of_one_that_is_ready(service: Service, home: Path) -> None:
    document = answered("status", home=home, **reach(service))
    assert document["ready"]
    assert "raven" in huginn("status", home=home, **reach(service)).stdout


def test_ps(service: Service, home: Path) -> None:
    document = answered("ps", home=home, **reach(service))
    assert document["workers"][0]["stats"]["streams"] == 4
    assert document["processes"] == []
    people = huginn("ps", home=home, **reach(service)).stdout
    assert "streams_busy" in people
    assert re.search(r"disk pages +7, 2\.0 MB, 3 hits, 1 refused, paused", people)
    assert re.search(
        r"memo +\d+ invocations with \d+ evidence in \d domains, 0 quarantined", people
    )
    room = service.mailbox.rooms.pop("muninn")
    without = huginn("ps", home=home, **reach(service)).stdout
    service.mailbox.rooms["muninn"] = room
    assert "off: there is no muninn room" in without
    refused("ps", home=home, code="permission_denied", **reach(service, service.client_key))


def test_ps_shows_the_processes_of_this_home(service: Service, home: Path) -> None:
    with holder(home) as other:
        document = answered("ps", home=home, **reach(service))
        assert [each["pid"] for each in document["processes"]] == [other.pid]
        assert document["processes"][0]["parent"] == os.getpid()
        other.terminate()
