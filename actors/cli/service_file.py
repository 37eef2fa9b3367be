"""Who serves a data directory: `service.json` says it, and a lock proves it.

The lock on `service.lock` is held by the process that uses the directory, and the system lets go
of it when that process ends, however it ends. So `service.json` is believed only while the lock is
held: a file left behind by a crash misleads nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from actors.cli.asked import Failure
from actors.cli.processes import start_ticks

FILE: Final = "service.json"
_LOCK: Final = "service.lock"
# Whoever only looks holds the lock for microseconds: a claim outlasts that.
_CLAIM_SECONDS_MAX: Final = 1.0
_RETRY_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Service:
    """A service that runs. `started_ns` is Unix time; `start_ticks` with `pid` names the process
    beyond doubt (None where the system does not tell)."""

    pid: int
    port: int
    host: str
    shell: str
    profile: str
    started_ns: int
    start_ticks: int | None

    @property
    def url(self) -> str:
        return url(self.host, self.port)


def here(host: str, port: int, shell: str, profile: str) -> Service:
    """This process as a service."""
    pid = os.getpid()
    return Service(pid, port, host, shell, profile, time.time_ns(), start_ticks(pid))


def url(host: str, port: int) -> str:
    """Where a client on this machine finds what listens on `host`."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def running(home: Path) -> Service | None:
    """The service that runs on `home`, or None."""
    return _read(home) if is_claimed(home) else None


def is_claimed(home: Path) -> bool:
    """Whether a process holds the lock of `home`."""
    try:
        descriptor = os.open(home / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def claimed(home: Path) -> Iterator[None]:
    """Hold `home`, which exists, for this process alone.

    Raises Failure that names the service that has it, or says that another command does.
    """
    descriptor = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _lock(descriptor):
            raise _taken(home)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def announced(home: Path, service: Service) -> Iterator[None]:
    """Have `service.json` say that `service` runs, for as long as the block does."""
    path = home / FILE
    fresh = path.with_name(f".{FILE}.{service.pid}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(service), file)
    os.replace(fresh, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _CLAIM_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_RETRY_SECONDS)
        else:
            return True


def _taken(home: Path) -> Failure:
    service = _read(home)
    if service is None:
        return Failure(f"another huginn command works on {home}: wait for it", code="busy")
    return Failure(
        f"a service of {home} runs already (pid {service.pid}, {service.url}): `huginn down` "
        "stops it; --home or HUGINN_HOME chooses another data directory",
        code="already_running",
        pid=service.pid,
        url=service.url,
    )


def _read(home: Path) -> Service | None:
    try:
        return Service(**json.loads((home / FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
