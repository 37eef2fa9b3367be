"""The peer: the binding's own OpenAI-compatible server, in an environment made for it alone.

The server's extra packages go into a virtual environment below the user's cache directory that
sees this one's packages read-only, so it runs the same binding, the same library and the same
numpy, and nothing of it enters the project's environment or lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.installations import alive, free_port, processes_below

START_SECONDS_MAX = 120.0
_BINDING = "llama-cpp-python"


def environment() -> Path:
    """The Python of the peer's environment, made first where it is missing (some seconds)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    binding = version(_BINDING)
    home = cache / "huginn" / f"bench-peer-{binding}"
    python = home / "bin" / "python"
    ready = home / "ready"
    ours = sysconfig.get_paths()["purelib"]
    if ready.exists() and ready.read_text("utf-8") == ours:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    theirs = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # What is here already counts as installed; pip changes nothing outside its own environment.
    Path(theirs, "ours.pth").write_text(f"{ours}\n", "utf-8")
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, f"{_BINDING}[server]=={binding}"], check=True, timeout=300)
    ready.write_text(ours, "utf-8")
    return python


class Peer:
    """The server on a loopback port, one thread, flash attention on. A context manager.

    `cache` adds its prompt cache in memory. Two settings are not the server's defaults, both to its
    advantage: logits are kept for the last token alone (by default for every token of a prompt),
    and with `cache` a batch is 64 tokens, because each cached prompt keeps a row of logits (1 MB)
    for every token of a batch.
    """

    def __init__(self, weights: Path, directory: Path, *, context_tokens: int, cache: bool) -> None:
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._log = directory / f"peer-{'cache' if cache else 'plain'}.log"
        settings = {
            "model": weights,
            "host": "127.0.0.1",
            "port": self.port,
            "n_ctx": context_tokens,
            "n_threads": 1,
            "n_threads_batch": 1,
            "flash_attn": "true",
            "logits_all": "false",
            "verbose": "false",
        }
        if cache:
            batch = {"n_batch": 64, "n_ubatch": 64}
            settings |= {"cache": "true", "cache_type": "ram", "cache_size": 1 << 30, **batch}
        arguments = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
        self._command = [str(environment()), "-m", "llama_cpp.server", *arguments]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        # The server reads its settings from variables with the plainest of names.
        kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
        variables = {name: os.environ[name] for name in kept if name in os.environ}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=variables, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the peer did not become ready:\n{self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL, and no process of it is left."""
        if self.process is not None:
            kill_tree(self.process)
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that we started and all below it, and waits until they are gone."""
    below = [process.pid, *processes_below(process.pid)]
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    deadline = time.monotonic() + 15
    while any(alive(pid) for pid in below) and time.monotonic() < deadline:
        time.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all below it, in steps of the kernel's tick (10 ms)."""
    ticks = 0
    for each in (pid, *processes_below(pid)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
