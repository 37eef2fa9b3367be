"""Building and installing, on a project of four small libraries that build like the real ones."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors.worker.backends import llama_build
from actors.worker.backends.llama_build import RECORD, Source, build, flags, install
from actors.worker.backends.llama_library import LIBRARIES
from protocol.errors import WorkerFault

CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(small C CXX)
add_library(ggml-base base.c)
add_library(ggml-cpu cpu.c)
add_library(ggml ggml.c)
add_library(llama llama.c)
target_link_libraries(ggml-cpu ggml-base)
target_link_libraries(ggml ggml-cpu)
target_link_libraries(llama ggml)
foreach(each ggml-base ggml-cpu ggml llama)
  set_target_properties(${each} PROPERTIES VERSION 0.1.2 SOVERSION 0)
endforeach()
"""
FILES = {
    "CMakeLists.txt": CMAKE,
    "base.c": "int base(void) { return 40; } const char *where(void) { return __FILE__; }",
    "cpu.c": "int base(void); int cpu(void) { return base() + 1; }",
    "ggml.c": "int cpu(void); int both(void) { return cpu(); }",
    "llama.c": "int both(void); int answer(void) { return both() + 1; }",
}


def pack(path: Path, files: dict[str, str]) -> tuple[Source, Path]:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"small-1.0/vendor/small/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Source("small", "1.0", sha256, "small-1.0/vendor/small"), path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, Path]:
    return pack(tmp_path_factory.mktemp("sdist") / "small-1.0.tar.gz", FILES)


@pytest.fixture(scope="module")
def built(sdist: tuple[Source, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, path = sdist
    said: list[str] = []
    cache = tmp_path_factory.mktemp("cache")
    result = build(source, cache, sdist=path, say=said.append)
    assert len(said) == 1
    return result


def answer(directory: Path) -> str:
    """What the installed library says, in a process of its own."""
    code = f"import ctypes; print(ctypes.CDLL({str(directory / 'libllama.so')!r}).answer())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_build_holds_the_libraries_and_their_record(
    built: Path, sdist: tuple[Source, Path]
) -> None:
    record = json.loads((built / RECORD).read_text(encoding="utf-8"))
    assert record["source"]["sha256"] == sdist[0].sha256
    assert record["flags"] == list(flags(platform.machine()))
    assert len(record["compilers"]) == 2
    for name in LIBRARIES:
        found = hashlib.sha256((built / name).read_bytes()).hexdigest()
        assert record["libraries"][name] == found
    assert answer(built) == "42"


def test_a_second_build_is_the_first_one_at_once(built: Path, sdist: tuple[Source, Path]) -> None:
    again = build(sdist[0], built.parent, sdist=Path("/nonexistent"), say=pytest.fail)
    assert again == built


def test_the_same_compiler_gives_the_same_files_elsewhere(
    built: Path, sdist: tuple[Source, Path], tmp_path: Path
) -> None:
    other = build(sdist[0], tmp_path / "another" / "place", sdist=sdist[1], say=lambda _: None)
    for name in LIBRARIES:
        assert (other / name).read_bytes() == (built / name).read_bytes()
    where = ctypes.CDLL(str(other / "libggml-base.so")).where
    where.restype = ctypes.c_char_p
    assert where() == b"llama.cpp/base.c"


def test_two_builds_at_once_build_once(sdist: tuple[Source, Path], tmp_path: Path) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(build, sdist[0], tmp_path, sdist=sdist[1], say=said.append)
            for _ in range(2)
        ]
        assert len({run.result() for run in runs}) == 1
    assert len(said) == 1


def test_a_damaged_build_is_made_again(sdist: tuple[Source, Path], tmp_path: Path) -> None:
    first = build(sdist[0], tmp_path, sdist=sdist[1], say=lambda _: None)
    (first / "libllama.so").write_bytes(b"half")
    again = build(sdist[0], tmp_path, sdist=sdist[1], say=lambda _: None)
    assert again == first
    assert answer(again) == "42"


def test_another_source_than_the_pinned_one_is_refused(
    sdist: tuple[Source, Path], tmp_path: Path
) -> None:
    other, path = pack(tmp_path / "other.tar.gz", {**FILES, "llama.c": "int answer(void);"})
    assert other.sha256 != sdist[0].sha256
    with pytest.raises(WorkerFault, match=sdist[0].sha256):
        build(sdist[0], tmp_path / "cache", sdist=path, say=lambda _: None)


def test_a_failed_build_names_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    source, path = pack(tmp_path / "bad.tar.gz", {**FILES, "llama.c": "this is not C"})
    cache = tmp_path / "cache"
    with pytest.raises(WorkerFault, match=r"\.log") as caught:
        build(source, cache, sdist=path, say=lambda _: None)
    log = Path(str(caught.value).rpartition(" ")[2])
    assert "llama.c" in log.read_text(encoding="utf-8")
    assert [entry for entry in cache.iterdir() if entry.is_dir()] == []


@pytest.mark.parametrize("variable", ["CC", "CXX"])
def test_a_missing_compiler_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sdist: tuple[Source, Path]
) -> None:
    monkeypatch.setenv(variable, "no-such-compiler")
    with pytest.raises(WorkerFault, match="no-such-compiler"):
        build(sdist[0], tmp_path, sdist=sdist[1])


def test_install_replaces_what_was_there_once(built: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libllama.so").write_bytes(b"old")
    assert install(built, tmp_path)
    assert answer(tmp_path / "lib") == "42"
    assert not install(built, tmp_path)
    (tmp_path / "lib" / "libggml.so").write_bytes(b"damaged")
    assert install(built, tmp_path)
    assert answer(tmp_path / "lib") == "42"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".huginn-install.lock", "lib"]


def test_flags_pin_the_instruction_sets() -> None:
    assert {"GGML_NATIVE=OFF", "GGML_OPENMP=OFF", "GGML_AVX2=ON", "GGML_FMA=ON"} <= set(
        flags("x86_64")
    )
    assert not any("AVX" in flag for flag in flags("aarch64"))


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert llama_build.cache_dir() == tmp_path / "huginn" / "llama"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert llama_build.cache_dir() == Path(os.path.expanduser("~")) / ".cache" / "huginn" / "llama"
