"""Checks of the machine: interpreter, libraries, disk, shared memory, clock, Ray's environment."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.cli.checks import Check, Finding

if TYPE_CHECKING:
    from actors.config import Config

_PYTHON_MIN: Final = (3, 11)
_RAY: Final = "2.60."
# The default model, a build of libllama and some conversations fit into this.
_FREE_BYTES_MIN: Final = 2_000_000_000
# Ray's object store here is 100 MB; with less shared memory it falls back to files.
_SHARED_BYTES_MIN: Final = 120_000_000
_SHARED: Final = Path("/dev/shm")
# No clock that is right shows less than the day on which this was written.
_EPOCH_S_MIN: Final = 1_764_000_000
_SKEW_SECONDS_MAX: Final = 5.0


def machine_checks(config: Config) -> list[Check]:
    """The checks in the order in which they are shown."""
    home = config.home_path
    return [
        ("python", _python),
        ("venv", _venv),
        ("libllama", _libllama),
        ("ray", lambda: _ray(config)),
        ("ray token", _ray_token),
        ("disk", lambda: _disk(home)),
        ("shared memory", lambda: _shared_memory(config)),
        ("clock", lambda: _clock(home)),
        ("data directory", lambda: _home(home)),
    ]


def _python() -> Finding:
    found = platform.python_version()
    if sys.version_info < _PYTHON_MIN:
        wanted = ".".join(map(str, _PYTHON_MIN))
        return Finding("python", "fail", found, f"install Python {wanted} or later")
    return Finding("python", "ok", f"{found}, {platform.machine()}, {sys.executable}")


def _venv() -> Finding:
    if sys.prefix == sys.base_prefix:
        cure = "use a virtual environment: `make install` makes one"
        return Finding("venv", "warn", "none: packages are the system's", cure)
    return Finding("venv", "ok", sys.prefix)


def _libllama() -> Finding:
    from actors.cli.fetch import is_built
    from actors.worker.backends.llama_build import PINNED

    cure = "python -m actors.worker.backends.llama_build"
    if not is_built():
        return Finding("libllama", "fail", "not built with the pinned flags", cure)
    found = importlib.metadata.version(PINNED.package)
    if found != PINNED.version:
        pin = f"pip install {PINNED.package}=={PINNED.version}"
        return Finding("libllama", "fail", f"{found}, pinned is {PINNED.version}", pin)
    return Finding("libllama", "ok", f"built from {PINNED.package} {found}")


def _ray(config: Config) -> Finding:
    try:
        found = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        state = "fail" if config.shell == "ray" else "warn"
        cure = "pip install 'ray==2.60.*', or `huginn up --embedded`"
        return Finding("ray", state, "not installed", cure)  # type: ignore[arg-type]
    if not found.startswith(_RAY):
        cure = f"pip install 'ray=={_RAY}*': others were not measured"
        return Finding("ray", "warn", f"{found}, measured is {_RAY}*", cure)
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode not in (None, "token"):
        cure = "unset RAY_AUTH_MODE: `huginn up` sets token, other Ray programs here use yours"
        return Finding("ray", "warn", f"{found}, RAY_AUTH_MODE={mode} in this shell", cure)
    return Finding("ray", "ok", f"{found}, started with token authentication")


def _ray_token() -> Finding:
    """Ray's own token, which other Ray programs of this user share."""
    path = Path.home() / ".ray" / "auth_token"
    if path.exists() and path.stat().st_mode & 0o077:
        detail = f"{path} can be read by others (Huginn uses its own, 0600)"
        return Finding("ray token", "warn", detail, f"chmod 600 {path}")
    return Finding("ray token", "ok", "no token of this user lies open")


def _disk(home: Path) -> Finding:
    from actors.cli.output import size

    there = home
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < _FREE_BYTES_MIN:
        cure = f"free space, or choose another data directory; {size(_FREE_BYTES_MIN)} are wanted"
        return Finding("disk", "warn", f"{size(free)} free at {there}", cure)
    return Finding("disk", "ok", f"{size(free)} free at {there}")


def _shared_memory(config: Config) -> Finding:
    from actors.cli.output import size

    if config.shell != "ray" or not _SHARED.exists():
        return Finding("shared memory", "ok", "not needed here")
    free = shutil.disk_usage(_SHARED).free
    if free < _SHARED_BYTES_MIN:
        cure = "give the container --shm-size=256m, or `huginn up --embedded`"
        return Finding("shared memory", "warn", f"{size(free)} free in {_SHARED}", cure)
    return Finding("shared memory", "ok", f"{size(free)} free in {_SHARED}")


def _clock(home: Path) -> Finding:
    """Handles have times in them: a clock that went back makes those of yesterday not valid yet."""
    now = time.time()
    cure = "set the clock: handles and requests carry times"
    if now < _EPOCH_S_MIN:
        return Finding("clock", "fail", f"it shows {time.ctime(now)}", cure)
    written = [path.stat().st_mtime for path in (home / "rooms").glob("*.sqlite*")]
    ahead = max(written, default=now) - now
    if ahead > _SKEW_SECONDS_MAX:
        return Finding("clock", "fail", f"{ahead:.0f} s behind what was written last", cure)
    return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))


def _home(home: Path) -> Finding:
    if not home.exists():
        return Finding("data directory", "ok", f"{home}: made at the first start")
    mode = home.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding("data directory", "fail", f"{home} has mode {mode:o}", f"chmod 700 {home}")
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return Finding("data directory", "fail", f"{home} is not ours", "chown it, or HUGINN_HOME")
    return Finding("data directory", "ok", str(home))
