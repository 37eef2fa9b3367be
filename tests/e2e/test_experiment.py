"""`huginn experiment` and `huginn verify CTX` as a user runs them, on the tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.cli.processes import descendants, look
from actors.experiment.conditions import STEPS
from tests.installations import Service, tiny_home

_SECONDS_MAX = 180


def environment(home: Path, temporary: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HUGINN_")}
    return {**kept, "HUGINN_HOME": str(home), "TMPDIR": str(temporary)}


@contextmanager
def begun(home: Path, temporary: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "actors.cli", "experiment", "--profile", "tiny-gemma"]
    with subprocess.Popen(
        [*command, "--tokens", "300", *words],
        env=environment(home, temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            for each in descendants(process.pid):
                os.kill(each.pid, signal.SIGKILL)
            process.kill()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "t"
    made.mkdir()
    return made


@pytest.mark.req("KV-2", "KV-5", "KV-11")
def test_an_experiment_from_the_command_line(tmp_path: Path, temporary: Path) -> None:
    home, out = tiny_home(tmp_path / "home"), tmp_path / "out"
    with begun(home, temporary, "--out", str(out), "--seed", "5", "--json") as process:
        printed, errors = process.communicate(timeout=_SECONDS_MAX)
    assert process.returncode == 0, errors
    report = json.loads((out / "report.json").read_text())
    assert json.loads(printed) == report
    assert {"profile", "machine", "rows", "checks", "seed"} <= set(report)
    assert (report["profile"], report["seed"]) == ("tiny-gemma", 5)
    assert [row["condition"] for row in report["rows"]] == list(STEPS)
    for row in report["rows"]:
        named = {"prompt_tokens", "reused_tokens", "ttft_ms", "state_digest", "answer_digest"}
        assert named <= set(row)
        assert 0 < row["stream_kv_bytes_max"] <= row["resident_kv_bytes"] < row["device_bytes"]
        assert row["worker_rss_bytes"] > 0
    assert report["reuse_age_s"]
    assert all(age > 0 for age in report["reuse_age_s"].values())
    assert all(check["ok"] for check in report["checks"])
    assert len(report["checks"]) == 20
    assert errors.splitlines()[0] == f"1/{len(STEPS)} cold"
    assert {path.name for path in out.iterdir()} == {"report.json", "report.md", "report.svg"}
    # Nothing else: neither in its own temporary directory, nor in the user's data directory.
    assert list(temporary.iterdir()) == []
    assert {path.name for path in home.iterdir()} == {"models"}


def test_an_experiment_that_is_stopped_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    home = tiny_home(tmp_path / "home")
    with begun(home, temporary, "--out", str(tmp_path / "out")) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith("cold\n")
        below = [each.pid for each in descendants(process.pid)]
        assert len(below) >= 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
    deadline = time.monotonic() + 10
    while any(look(pid) for pid in below):
        assert time.monotonic() < deadline, "processes of the experiment are left"
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.req("KV-2")
def test_a_context_is_verified_against_the_service(tmp_path: Path, temporary: Path) -> None:
    with Service(tiny_home(tmp_path / "home")) as service:
        asked = {
            "model": "tiny-gemma",
            "messages": [
                {"role": "user", "content": "Which river?"},
                {"role": "assistant", "content": "The Seine."},
                {"role": "user", "content": "And the sea?"},
            ],
            "max_tokens": 4,
        }
        answer = service.post("/v1/chat/completions", asked)
        context = answer.headers["Huginn-Context"]
        command = [sys.executable, "-m", "actors.cli", "verify", context, "--json"]
        variables = environment(service.home, temporary) | {"HUGINN_PORT": str(service.port)}
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["equal"]
        assert found["context_id"] == context
        # What the service had was warm; what it was compared with was not.
        assert found["reused_tokens"] > 0
        receipt = service.receipt(answer.json()["id"])
        state = {row["what"]: row for row in found["compared"]}["state"]
        assert state["served"] == state["recomputed"] == receipt["state_digest"]
        unknown = subprocess.run(
            [*command[:4], context[:-6] + "aaaaaq"],
            env=variables,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert unknown.returncode == 1
