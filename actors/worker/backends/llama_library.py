"""The llama.cpp library, loaded once a process and made quiet.

Only the bindings' low-level module is used. Importing it is what loads libllama, so every use goes
through `library()`, which turns a missing build into an error that says how to make one. The
library writes to standard error unless told otherwise; here its lines go to the logger
`huginn.llama` at debug level, and errors at warning level.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
from pathlib import Path
from typing import Any, Final

from protocol.errors import WorkerFault

_LOG: Final = logging.getLogger("huginn.llama")
_ERROR: Final = 4  # GGML_LOG_LEVEL_ERROR
# The libraries that decide the bits, in the order in which their digests are bound.
LIBRARIES: Final = ("libggml-base.so", "libggml-cpu.so", "libggml.so", "libllama.so")


@functools.cache
def library() -> Any:
    """The bindings' low-level module. Raises WorkerFault where libllama is not installed."""
    try:
        from llama_cpp import llama_cpp as module  # noqa: PLC0415, TID251 - loads libllama
    except (ImportError, OSError, RuntimeError) as error:
        raise WorkerFault(
            f"libllama cannot be loaded ({error}). Build and install it once with "
            "`python -m actors.worker.backends.llama_build`"
        ) from error
    module.llama_log_set(_log_callback(module), ctypes.c_void_p(0))
    module.llama_backend_init()
    return module


@functools.cache
def _log_callback(module: Any) -> Any:
    # Cached, because the library keeps the pointer for ever and ctypes would free it.
    def write(level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").rstrip()
        if line.strip("."):
            _LOG.log(logging.WARNING if level == _ERROR else logging.DEBUG, "%s", line)

    return module.llama_log_callback(write)


def library_dir() -> Path:
    """The directory that holds the libraries that `library()` loads."""
    return Path(library()._base_path)


@functools.cache
def build_digest() -> bytes:
    """The digest of the library files that this process loads: a profile's `build_digest`."""
    return digest_of(library_dir())


def digest_of(directory: Path) -> bytes:
    """SHA-256 over (name, SHA-256) of each library file in `directory`. Raises WorkerFault."""
    outer = hashlib.sha256()
    try:
        for name in LIBRARIES:
            with (directory / name).open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").digest()
            outer.update(name.encode("ascii") + b"\0" + inner)
    except OSError as error:
        raise WorkerFault(f"the libraries in {directory} cannot be read: {error}") from error
    return outer.digest()


def version() -> str:
    """The bindings' version, which names the llama.cpp commit that they wrap."""
    import llama_cpp  # noqa: PLC0415, TID251 - as in library()

    return str(llama_cpp.__version__)
