"""The models that tests run on: the tiny one always, the default one where marked `model`.

`tiny()` and `real()` give a path and the profile bound on this machine; each is resolved once a
process. The default weights come from $HUGINN_TEST_WEIGHTS, or from the data directory, where they
are fetched if they are missing.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from msgspec import structs

from actors.worker.backends.llama import LlamaBackend
from actors.worker.backends.llama_library import build_digest
from profiles import loader, weights
from profiles.profile import RuntimeProfile
from tests import tiny_gemma

Model = tuple[Path, RuntimeProfile]


@functools.cache
def tiny() -> Model:
    """The tiny Gemma and its profile."""
    path = tiny_gemma.cached()
    return path, loader.bind(loader.load("tiny-gemma"), path, build_digest())


@functools.cache
def real() -> Model:
    """The default model and its profile."""
    spec = loader.load()
    chosen = os.environ.get("HUGINN_TEST_WEIGHTS")
    path = Path(chosen) if chosen else weights.ensure(spec, _home(), notice=print)
    return path, loader.bind(spec, path, build_digest())


def tiny_long() -> Model:
    """The tiny Gemma, and a profile that takes advances longer than its window: what the library
    does with 65 tokens and more is to be seen in tests, though no shipped schedule feeds them."""
    path, profile = tiny()
    longer = structs.replace(profile, schedule="block/256", chunk_tokens=256, page_tokens=256)
    return path, longer


def open_tiny(threads_batch: int = 1) -> LlamaBackend:
    """A new back end on the tiny model (10 ms) that takes long advances; the caller closes it."""
    return LlamaBackend(*tiny_long(), threads_batch=threads_batch)


def open_real(threads_batch: int = 1) -> LlamaBackend:
    """A new back end on the default model (1.5 s, 1 GB); the caller closes it."""
    return LlamaBackend(*real(), threads_batch=threads_batch)


def _home() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "huginn"
