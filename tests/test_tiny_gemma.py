"""The tiny model is the same bytes each time, and the ones that its profile pins."""

from __future__ import annotations

import hashlib
from pathlib import Path

from profiles import loader
from tests import tiny_gemma


def test_two_builds_are_one_file(tmp_path: Path) -> None:
    first = tiny_gemma.build(tmp_path / "one.gguf").read_bytes()
    second = tiny_gemma.build(tmp_path / "two.gguf").read_bytes()
    assert first == second == tiny_gemma.cached().read_bytes()
    pinned = loader.load("tiny-gemma").weights
    assert hashlib.sha256(first).hexdigest() == pinned.sha256
    assert len(first) == pinned.size_bytes
