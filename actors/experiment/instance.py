"""A service of an experiment's own: a fresh data directory and processes that end with it.

The weights are linked, everything else is new, so nothing that an earlier run left can be reused.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from actors.cli.asked import Failure
from actors.cli.client import Client
from actors.cli.processes import descendants, look, signal_descendants
from profiles import loader, weights

_STOP_SECONDS_MAX: Final = 60.0
_RESTART_SECONDS_MAX: Final = 180.0
_QUIET_SECONDS_MAX: Final = 120.0
_POLL_SECONDS: Final = 0.05
_LOG_CHARS: Final = 2000
_RIGHTS: Final = ("advance", "assemble", "generate", "read", "telemetry", "write")


class Instance:
    """`huginn up` on a temporary data directory. A context manager; nothing of it stays."""

    def __init__(self, profile: str, shell: str, weights_file: Path) -> None:
        self.profile = profile
        self.home = Path(tempfile.mkdtemp(prefix="hg-x-"))
        self._log = self.home / "experiment.log"
        self._shell = shell
        self._weights = weights_file
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}

    @property
    def model(self) -> str:
        """The name under which the service has its model."""
        return str(self._ready["model"])

    @property
    def operator_key(self) -> str:
        return str(self._ready["key"])

    def client(self, key: str | None = None) -> Client:
        """A client with `key`, the operator's by default."""
        return Client(self._ready["url"], key or self.operator_key, _RESTART_SECONDS_MAX)

    def key_of(self, principal: str) -> str:
        """A new principal's key: a namespace and a domain of its own, and the right to see what
        it reused, without which a receipt says 0 whatever happened."""
        asked = {"principal": principal, "rights": list(_RIGHTS)}
        return str(self.client().post("/huginn/v1/keys", asked)["key"])

    def stats(self) -> dict[str, Any] | None:
        """The worker's counters; None while there is no worker."""
        found: dict[str, Any] | None
        found = self.client().get("/huginn/v1/status")["workers"][0]["stats"]
        return found

    def worker_rss_bytes(self) -> int | None:
        stats = self.stats()
        process = None if stats is None else look(int(stats["process"]))
        return None if process is None else process.rss_bytes

    def log(self) -> list[str]:
        """The last lines that the service wrote on standard error: warnings, and worse."""
        return self._log.read_text("utf-8", "replace")[-_LOG_CHARS:].splitlines()

    def wait_quiet(self) -> None:
        """Wait until no job runs or waits, so that a measurement has the worker for itself."""
        deadline = time.monotonic() + _QUIET_SECONDS_MAX
        calm, before = 0, -1
        while calm < 3:
            stats = self.stats()
            fed = -1 if stats is None else int(stats["prefilled_tokens"])
            idle = stats is not None and not stats["streams_busy"] and not stats["waiting"]
            calm = calm + 1 if idle and fed == before else 0
            before = fed
            if time.monotonic() > deadline:
                raise Failure("the worker does not come to rest", code="busy")
            time.sleep(_POLL_SECONDS)

    def kill_worker(self) -> float:
        """`kill -9` of the worker's process; the seconds until its successor answers."""
        stats = self.stats()
        if stats is None:
            raise Failure("there is no worker to kill", code="no_worker")
        began = time.monotonic()
        os.kill(int(stats["process"]), signal.SIGKILL)
        while time.monotonic() - began < _RESTART_SECONDS_MAX:
            now = self.stats()
            if now is not None and now["process"] != stats["process"]:
                return time.monotonic() - began
            time.sleep(_POLL_SECONDS)
        raise Failure("no new worker came after the old one was killed", code="no_worker")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _start(self) -> None:
        target = weights.weights_path(loader.load(self.profile), self.home)
        target.parent.mkdir(mode=0o700)
        target.symlink_to(self._weights)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HUGINN_")}
        environment = {**kept, "HUGINN_HOME": str(self.home), "HUGINN_SHELL": self._shell}
        command = [sys.executable, "-m", "actors.cli", "up", "--json", "--port", "0"]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "--profile", self.profile],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._ready = json.loads(line or b"{}")
        if "url" not in self._ready:
            said = self._ready.get("error", {}).get("message")
            reason = said or " ".join(self.log())
            raise Failure(f"the experiment's service did not start: {reason}", code="not_ready")

    def _end(self) -> None:
        process = self._process
        if process is not None:
            below = [each.pid for each in descendants(process.pid)]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                signal_descendants(process.pid, signal.SIGKILL)
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            deadline = time.monotonic() + _STOP_SECONDS_MAX
            while any(look(pid) for pid in below) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        shutil.rmtree(self.home, ignore_errors=True)
