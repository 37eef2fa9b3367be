"""Build libllama once, with pinned flags, and put it where the bindings look for it.

    python -m actors.worker.backends.llama_build

Other instruction sets, other thread libraries and other versions give other KV bits, so a profile
binds the digest of the library files, and this is how those files come to be. The source is the
sdist of the pinned bindings, by hash. Only libllama and libggml are built (3 minutes on two cores,
against 9 for the whole package). What decides the outcome (sdist, flags, compilers) names a
directory of the cache; a second run finds it there and returns within a second. Source paths are
mapped away, so the same compiler gives the same files wherever the cache lies.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actors.worker.backends.llama_library import LIBRARIES
from profiles.profile import isa
from protocol.errors import WorkerFault

RECORD: Final = "huginn-build.json"
_ISA_FLAGS: Final = {
    "avx2": ("GGML_AVX=ON", "GGML_AVX2=ON"),
    "bmi2": ("GGML_BMI2=ON",),
    "f16c": ("GGML_F16C=ON",),
    "fma": ("GGML_FMA=ON",),
}
_FLAGS: Final = (
    "CMAKE_BUILD_TYPE=Release",
    "BUILD_SHARED_LIBS=ON",
    # The libraries find one another beside themselves, wherever they are put.
    "CMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "CMAKE_INSTALL_RPATH=$ORIGIN",
    "GGML_NATIVE=OFF",
    "GGML_OPENMP=OFF",
    "GGML_CCACHE=OFF",
    *(f"LLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER")),
    *("LLAMA_BUILD_APP=OFF", "LLAMA_BUILD_MTMD=OFF", "LLAMA_BUILD_UI=OFF"),
    *("LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF"),
    # Written into the libraries; without these, the state of an enclosing repository would be.
    *("GGML_BUILD_COMMIT=pinned", "LLAMA_BUILD_COMMIT=pinned", "LLAMA_BUILD_NUMBER=0"),
    "GIT_EXE=",
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """An sdist of the registry by hash, and the CMake project inside it."""

    package: str
    version: str
    sha256: str
    project: str

    @property
    def file(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}.tar.gz"


PINNED: Final = Source(
    package="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    project="llama_cpp_python-0.3.36/vendor/llama.cpp",
)


def cache_dir() -> Path:
    """Where builds are kept: $XDG_CACHE_HOME/huginn/llama, by default under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "huginn" / "llama"


def flags(machine: str) -> tuple[str, ...]:
    """The CMake definitions for `machine`, in order."""
    return (*_FLAGS, *(flag for name in isa(machine) for flag in _ISA_FLAGS[name]))


def compilers() -> tuple[str, str]:
    """The first version line of the C and the C++ compiler. Raises WorkerFault without them."""
    return _version(os.environ.get("CC", "cc")), _version(os.environ.get("CXX", "c++"))


def build(source: Source, cache: Path, *, sdist: Path | None = None, say: Say = print) -> Path:
    """The directory of the built libraries and their record, built first where it is missing.

    `sdist` is a copy of the source that is already here; otherwise pip downloads it. Raises
    WorkerFault that names what is missing (compiler, make, cmake, network) or the log of a build
    that failed.
    """
    chosen, versions = flags(platform.machine()), compilers()
    key = hashlib.sha256(
        json.dumps([source.sha256, source.project, chosen, versions]).encode()
    ).hexdigest()[:16]
    target = cache / key
    if _is_whole(target):
        return target
    cmake = _cmake()
    if shutil.which("make") is None:
        raise WorkerFault("no `make` on this machine: install it (Debian: apt install make)")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{key}.lock"):
        if _is_whole(target):
            return target
        with tempfile.TemporaryDirectory(prefix=f".{key}-", dir=cache) as temporary:
            room = Path(temporary)
            project = _unpack(source, sdist or _download(source, room, say), room)
            built = _compile(cmake, project, chosen, log=cache / f"{key}.log", say=say)
            _write_record(built, source, chosen, versions)
            shutil.rmtree(target, ignore_errors=True)
            os.replace(built, target)
    return target


def install(built: Path, package: Path) -> bool:
    """Copy the libraries into `package`/lib (the bindings' directory); False if they are there.

    A process that has loaded the former ones keeps them. Raises WorkerFault.
    """
    target = package / "lib"
    with _locked(package / ".huginn-install.lock"):
        if _is_whole(target) and _read(target) == _read(built):
            return False
        with tempfile.TemporaryDirectory(prefix=".lib-", dir=package) as temporary:
            fresh, former = Path(temporary) / "fresh", Path(temporary) / "former"
            shutil.copytree(built, fresh, symlinks=True)
            if target.exists():
                os.replace(target, former)
            os.replace(fresh, target)
    return True


def bindings_dir() -> Path:
    """The installed bindings' package directory. Raises WorkerFault if there are none."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise WorkerFault(
            "the bindings are not installed. Install them without their own build: "
            f'CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" pip install '
            f"{PINNED.package}=={PINNED.version}"
        )
    return Path(spec.origin).parent


def main(*, say: Say = print) -> int:
    """Build and install; the process's exit status."""
    try:
        package = bindings_dir()
        built = build(PINNED, cache_dir(), say=say)
        fresh = install(built, package)
    except WorkerFault as fault:
        say(f"llama.cpp: {fault}")
        return 1
    say(f"llama.cpp {PINNED.version}: {'installed' if fresh else 'up to date'} ({built.name})")
    return 0


def _version(command: str) -> str:
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorkerFault(
            f"no compiler `{command}` on this machine: install one (Debian: apt install "
            "build-essential), or name it in CC and CXX"
        ) from error
    return done.stdout.partition("\n")[0]


def _cmake() -> list[str]:
    if importlib.util.find_spec("cmake") is not None:
        return [sys.executable, "-m", "cmake"]
    beside = Path(sys.executable).with_name("cmake")
    found = str(beside) if beside.exists() else shutil.which("cmake")
    if found is None:
        raise WorkerFault("no `cmake` here: `pip install cmake` puts one into this environment")
    return [found]


def _download(source: Source, room: Path, say: Say) -> Path:
    say(f"llama.cpp: downloading {source.package} {source.version}")
    requirements = room / "requirements.txt"
    requirements.write_text(
        f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8"
    )
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps"),
        *(
            f"--no-binary={source.package}",
            "--require-hashes",
            "--no-input",
            "--disable-pip-version-check",
            "--quiet",
        ),
        *("--dest", str(room), "--requirement", str(requirements)),
    ]
    # pip asks an sdist for its metadata; without these, the answer would begin with a build.
    environment = {**os.environ, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise WorkerFault(f"pip cannot download {source.file} ({reason})")
    return room / source.file


def _unpack(source: Source, sdist: Path, room: Path) -> Path:
    """The project's directory under `room`, of an sdist with the pinned hash."""
    try:
        with sdist.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != source.sha256:
            raise WorkerFault(f"{sdist} has SHA-256 {found}, pinned is {source.sha256}")
        with tarfile.open(sdist) as archive:
            archive.extractall(room / "source", filter="data")
    except (OSError, tarfile.TarError) as error:
        raise WorkerFault(f"{sdist} cannot be unpacked: {error}") from error
    return room / "source" / source.project


def _compile(
    cmake: list[str], project: Path, chosen: tuple[str, ...], *, log: Path, say: Say
) -> Path:
    """Configure and build beside the project; gives a directory of the libraries alone."""
    room = project.parent
    out = room / "build"
    mapped = f"-ffile-prefix-map={project}=llama.cpp -ffile-prefix-map={out}=build"
    configure = [
        *(*cmake, "-S", str(project), "-B", str(out), "-G", "Unix Makefiles"),
        *(f"-D{flag}" for flag in chosen),
        *(f"-DCMAKE_C_FLAGS={mapped}", f"-DCMAKE_CXX_FLAGS={mapped}"),
    ]
    jobs = os.cpu_count() or 1
    compile_ = [*cmake, "--build", str(out), "--target", "llama", "-j", str(jobs)]
    say(f"llama.cpp: building with {jobs} jobs (about 6 CPU minutes; log: {log})")
    with log.open("wb") as sink:
        for command in (configure, compile_):
            done = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                raise WorkerFault(f"{' '.join(command[:4])} … failed: see {log}")
    built = room / "libraries"
    built.mkdir()
    for name in LIBRARIES:
        found = sorted(out.rglob(name))
        if not found:
            raise WorkerFault(f"the build made no {name}: see {log}")
        shutil.copyfile(found[0].resolve(), built / name)
        # Its soname, by which the other libraries ask for it.
        (built / f"{name}.0").symlink_to(name)
    return built


def _write_record(
    built: Path, source: Source, chosen: tuple[str, ...], versions: tuple[str, str]
) -> None:
    record = {
        "source": {"package": source.package, "version": source.version, "sha256": source.sha256},
        "flags": list(chosen),
        "compilers": list(versions),
        "machine": platform.machine(),
        "libraries": {name: _sha256(built / name) for name in LIBRARIES},
    }
    (built / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")


def _read(directory: Path) -> dict[str, object]:
    try:
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_whole(directory: Path) -> bool:
    """Whether `directory` holds a record and the very files that it names."""
    libraries = _read(directory).get("libraries")
    if not isinstance(libraries, dict):
        return False
    return all(
        (directory / name).is_file() and _sha256(directory / name) == libraries.get(name)
        for name in LIBRARIES
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One holder at a time, between processes too."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
