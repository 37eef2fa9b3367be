"""Real installations for tests: a data directory with the tiny model, and what runs on it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2 as httpx
from openai import OpenAI

from actors.config import Config
from profiles import loader, weights
from tests import tiny_gemma

START_SECONDS_MAX = 120.0


def free_port() -> int:
    """A port of loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tiny_home(home: Path) -> Path:
    """`home` as a data directory that holds the tiny model's weights."""
    target = weights.weights_path(loader.load("tiny-gemma"), home)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(tiny_gemma.cached(), target)
    return home


def roomy_profile(home: Path, context_tokens: int = 12288) -> Path:
    """The tiny model's profile in `home`, with room for long conversations."""
    spec = (Path(loader.__file__).parent / "tiny-gemma.toml").read_text("utf-8")
    profile = home / "roomy-gemma.toml"
    wider = re.sub("context_tokens = .*", f"context_tokens = {context_tokens}", spec)
    profile.write_text(wider, "utf-8")
    return profile


def tiny_config(home: Path, **changes: Any) -> Config:
    values: dict[str, Any] = {
        "home": str(tiny_home(home)),
        "port": free_port(),
        "profile": "tiny-gemma",
        "shell": "embedded",
        **changes,
    }
    return Config(**values)


def processes_below(pid: int) -> list[int]:
    """The process ids of all descendants of `pid`, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, frontier = [], [pid]
    while frontier:
        parent = frontier.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        frontier += children
    return found


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Service:
    """`huginn up` as a user starts it, in a process of its own. A context manager.

    Its requests load no certificates: that would take longer than most answers do.
    """

    # What is run as `huginn`.
    module = "actors.cli"

    def __init__(self, home: Path, *, profile: str = "tiny-gemma", shell: str = "embedded") -> None:
        self.home = home
        self.port = free_port()
        self._profile = profile
        self._shell = shell
        self._log = home / "test-service.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.home / "operator.key").read_text("ascii").strip()

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HUGINN_HOME": str(self.home),
            "HUGINN_PORT": str(self.port),
            "HUGINN_PROFILE": self._profile,
        }

    def start(self) -> Self:
        command = [sys.executable, "-m", self.module, "up"]
        if self._shell == "embedded":
            command.append("--embedded")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )
        self.wait_until_ready()
        return self

    def wait_until_ready(self, seconds: float = START_SECONDS_MAX) -> float:
        """Waits until /health says ok; how long that took. Fails with the log if it does not."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            try:
                if httpx.get(f"{self.url}/health", timeout=60, verify=False).status_code == 200:
                    return time.monotonic() - began
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"the service did not become ready:\n{self._log.read_text()[-4000:]}")

    def client(self, key: str | None = None) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, max_retries=0)

    def get(self, path: str, key: str | None = None) -> httpx.Response:
        return httpx.get(self.url + path, headers=self._headers(key), timeout=60, verify=False)

    def post(self, path: str, body: object, key: str | None = None) -> httpx.Response:
        return httpx.post(
            self.url + path, json=body, headers=self._headers(key), timeout=600, verify=False
        )

    def delete(self, path: str, key: str | None = None) -> httpx.Response:
        return httpx.delete(self.url + path, headers=self._headers(key), timeout=60, verify=False)

    def _headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self.key}"}

    def receipt(self, response_id: str) -> dict[str, Any]:
        """The receipt, once its state digest is there."""
        deadline = time.monotonic() + 120
        while True:
            answer = self.get(f"/huginn/v1/receipts/{response_id}")
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            if found["state_digest"] is not None:
                return found
            assert time.monotonic() < deadline, f"no state digest: {found}"
            time.sleep(0.05)

    def worker_pid(self) -> int:
        return int(self.worker_stats()["process"])

    def worker_stats(self) -> dict[str, Any]:
        """The worker's counters, as the operator is told them."""
        status = self.get("/huginn/v1/status").json()
        found: dict[str, Any] = status["workers"][0]["stats"]
        return found

    def quiet(self) -> dict[str, Any]:
        """The worker's counters, once nothing goes on behind an answer and all of it is on disk."""
        deadline = time.monotonic() + 60
        while True:
            stats = self.worker_stats()
            if stats["streams_busy"] == stats["waiting"] == stats["tiers"]["disk"]["queued"] == 0:
                return stats
            assert time.monotonic() < deadline, f"the worker never comes to rest: {stats}"
            time.sleep(0.05)

    def memo(self, invocations: int) -> dict[str, Any]:
        """What the operator is told of the memo, once it knows so many of the operator's."""
        deadline = time.monotonic() + 60
        while True:
            memo: dict[str, Any] = self.get("/huginn/v1/status").json()["muninn"]
            if [each for each in memo["domains"] if each["invocations"] >= invocations]:
                return memo
            assert time.monotonic() < deadline, memo
            time.sleep(0.05)

    def kill(self) -> None:
        """`kill -9` of all of its processes, at once; returns when none of them is left."""
        assert self.process is not None
        below = processes_below(self.process.pid)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in below):
            assert time.monotonic() < deadline, f"still running after a kill: {below}"
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and a check that nothing of it is left."""
        if self.process is None or self.process.poll() is not None:
            return
        below = processes_below(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in below) and time.monotonic() < deadline:
            time.sleep(0.1)
        left = [pid for pid in below if alive(pid)]
        assert not left, f"still running after the service stopped: {left}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            if self.process is not None and self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
