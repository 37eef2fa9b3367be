"""Loading the library: quiet when it is there, a cure when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.worker.backends import llama_library
from protocol.errors import WorkerFault
from tests.model_fixtures import tiny


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_library_writes_nothing_to_the_terminal() -> None:
    path, _ = tiny()
    done = run(
        "from pathlib import Path\n"
        "from actors.worker.backends.llama_tokenizer import LlamaTokenizer\n"
        f"print(LlamaTokenizer(Path({str(path)!r})).contract.vocabulary_tokens)"
    )
    assert (done.stdout, done.stderr) == ("392\n", "")


def test_a_missing_library_names_the_command_that_builds_it(tmp_path: Path) -> None:
    done = run(
        "from actors.worker.backends.llama_library import library\n"
        "from protocol.errors import WorkerFault\n"
        "try:\n    library()\n"
        "except WorkerFault as fault:\n    print(fault)",
        LLAMA_CPP_LIB_PATH=str(tmp_path),
    )
    assert "python -m actors.worker.backends.llama_build" in done.stdout


def test_the_build_digest_covers_every_library(tmp_path: Path) -> None:
    for name in llama_library.LIBRARIES:
        (tmp_path / name).write_bytes(b"bytes of " + name.encode())
    digests = {llama_library.digest_of(tmp_path)}
    for name in llama_library.LIBRARIES:
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(kept + b"!")
        digests.add(llama_library.digest_of(tmp_path))
        (tmp_path / name).write_bytes(kept)
    assert len(digests) == 1 + len(llama_library.LIBRARIES)
    assert llama_library.digest_of(tmp_path) in digests
    (tmp_path / name).unlink()
    with pytest.raises(WorkerFault, match=name):
        llama_library.digest_of(tmp_path)


def test_the_build_digest_is_that_of_the_loaded_directory() -> None:
    directory = llama_library.library_dir()
    assert llama_library.build_digest() == llama_library.digest_of(directory)
    assert llama_library.version() == "0.3.36"
