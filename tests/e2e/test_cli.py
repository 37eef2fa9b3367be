"""The command line as its user meets it: a service from nothing to gone, on the tiny model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.cli.processes import descendants, look
from tests import tiny_gemma

_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli") / "home"
    (made / "models").mkdir(parents=True)
    made.chmod(0o700)
    (made / "models" / "tiny-gemma.gguf").write_bytes(tiny_gemma.cached().read_bytes())
    return made


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HUGINN_")}
    return {**kept, "HUGINN_HOME": str(home), "HUGINN_PROFILE": "tiny-gemma", **more}


def huginn(
    home: Path, *words: str, given: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actors.cli.main", *words],
        env=environment(home, **more),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )


def answered(home: Path, *words: str, **more: str) -> Any:
    done = huginn(home, *words, "--json", **more)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def up(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A service in the foreground of another process group, and what it says when it is ready.

    Whatever happens, nothing of it is left when the block ends, or the test fails.
    """
    command = [sys.executable, "-m", "actors.cli.main", "up", "--json", *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, env=environment(home), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    below: list[int] = []
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        below = [each.pid for each in descendants(process.pid)]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 60
    while any(look(pid) is not None for pid in below):
        assert time.monotonic() < deadline, "processes of the service are left"
        time.sleep(0.05)


@pytest.mark.req("SRV-3", "OPS-7")
def test_a_service_and_every_verb(home: Path) -> None:
    port = free_port()
    with up(home, "--embedded", "--port", str(port)) as (process, ready):
        assert ready["url"] == f"http://127.0.0.1:{port}"
        assert ready["key"] == (home / "operator.key").read_text().strip()
        assert ready["pid"] == process.pid
        assert (home / "service.json").stat().st_mode & 0o777 == 0o600
        _looks(home, process, ready)
        _contexts(home)
        _keys(home)
        _refusals(home)
        assert answered(home, "down") == {"stopped": True, "pid": process.pid}
        assert process.wait(60) == 0
        assert process.communicate() == ("", "")
    assert not (home / "service.json").exists()
    assert huginn(home, "status", "--json").returncode == 1
    assert answered(home, "fsck")["ok"]


def _looks(home: Path, process: subprocess.Popen[str], ready: dict[str, str]) -> None:
    status = answered(home, "status")
    assert (status["ready"], status["pid"], status["url"]) == (True, process.pid, ready["url"])
    shown = answered(home, "ps")
    assert set(shown["rooms"]) >= {"authority", "ropes", "muninn", "assembler", "worker"}
    assert (shown["muninn"]["enabled"], shown["muninn"]["quarantined"]) == (True, 0)
    pids = [each["pid"] for each in shown["processes"]]
    assert pids[0] == process.pid
    assert shown["workers"][0]["stats"]["process"] in pids
    doctor = answered(home, "doctor")
    assert {each["name"]: each["state"] for each in doctor["checks"]}["streaming"] == "ok"
    request = urllib.request.Request(
        f"{ready['url']}/v1/models", headers={"Authorization": f"Bearer {ready['key']}"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert json.load(response)["data"][0]["id"] == ready["model"]


def _contexts(home: Path) -> None:
    words = ("--max-tokens", "4", "--temperature", "0")
    first = answered(home, "run", "Hello raven", *words)
    second = answered(home, "run", "Hello crow", *words)
    assert first["usage"]["completion_tokens"] <= 4
    plain = huginn(home, "run", "-", *words, given="Hello raven")
    assert (plain.returncode, plain.stdout) == (0, f"{first['content']}\n")
    a, b = first["context_id"], second["context_id"]
    (block,) = answered(home, "ctx", "show", a)["blocks"]
    assert block["content"] == "Hello raven"
    tree = answered(home, "ctx", "tree", a)
    assert tree["nodes"][0]["children"] == [block["block_id"]]
    tokens = [answered(home, "ctx", "tokens", each)["tokens"] for each in (a, b)]
    difference = answered(home, "ctx", "diff", a, b)
    at = difference["first_difference"]["token_index"]
    assert tokens[0][:at] == tokens[1][:at]
    assert tokens[0][at] != tokens[1][at]
    why = answered(home, "ctx", "why", second["id"], "--against", first["id"])
    assert why["receipt"]["context_id"] == b
    said = huginn(home, "chat", "--json", "--max-tokens", "3", given="one\ntwo\n").stdout
    turns = [json.loads(line) for line in said.splitlines()]
    assert turns[1]["receipt"]["reused_tokens"] > 0


def _keys(home: Path) -> None:
    made = answered(home, "key", "new", "--principal", "eve")
    own = {"HUGINN_API_KEY": made["key"]}
    theirs = answered(home, "run", "Hello", "--max-tokens", "2", **own)
    assert theirs["receipt"] is None
    assert huginn(home, "key", "ls", **own).returncode == 1
    answered(home, "key", "revoke", "eve")
    refused = huginn(home, "run", "Hello", "--json", **own)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "invalid_api_key"
    rows = {row["principal"]: row["revoked"] for row in answered(home, "key", "ls")}
    assert rows == {"operator": False, "eve": True}


def _refusals(home: Path) -> None:
    """What may not happen beside a service that runs."""
    again = huginn(home, "up", "--embedded", "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["error"]["code"] == "already_running"
    assert "huginn down" in again.stderr
    for words in (("fsck",), ("models", "rm", "tiny-gemma", "--yes")):
        assert huginn(home, *words).returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_stops_in_order(home: Path, number: signal.Signals) -> None:
    """As a terminal does it: every process of the group hears Ctrl-C."""
    with up(home, "--embedded", "--port", "0") as (process, _):
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(60) == 0
        assert process.communicate() == ("", "")
    assert not (home / "service.json").exists()


def test_a_second_signal_does_not_wait(home: Path) -> None:
    with up(home, "--embedded", "--port", "0") as (process, _):
        # Stopped, the worker cannot drain: only force ends this before its time is over.
        (worker,) = descendants(process.pid)
        os.kill(worker.pid, signal.SIGSTOP)
        process.terminate()
        time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 1
    assert not (home / "service.json").exists()


def test_a_killed_service_can_be_started_again(home: Path) -> None:
    with up(home, "--embedded", "--port", "0") as (process, _):
        process.kill()
        process.wait(60)
        assert (home / "service.json").exists()
    assert answered(home, "down") == {"stopped": False, "pid": None}
    with up(home, "--embedded", "--port", "0"):
        assert answered(home, "status")["ready"]


@pytest.mark.ray
def test_up_on_ray(home: Path) -> None:
    """Ray prints what it likes: standard output still has one line, and that is ours."""
    with up(home, "--port", "0") as (process, ready):
        assert ready["shell"] == "ray"
        assert answered(home, "run", "Hello", "--max-tokens", "2")["content"]
        ports = next(c for c in answered(home, "doctor")["checks"] if c["name"] == "open ports")
        assert ports["state"] in ("ok", "warn")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) == 0
        assert process.communicate()[0] == ""
