"""A profile is claimed only for the model, the vocabulary and the library that it pins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors.worker.backends.llama import LlamaBackend
from profiles.profile import RuntimeProfile
from protocol.errors import ProfileFault, WorkerFault
from tests.model_fixtures import tiny

Change = Callable[[RuntimeProfile], RuntimeProfile]


def changed(**fields: object) -> Change:
    return lambda profile: msgspec.structs.replace(profile, **fields)


def model(**fields: object) -> Change:
    return lambda profile: msgspec.structs.replace(
        profile, model=msgspec.structs.replace(profile.model, **fields)
    )


def tokenizer(**fields: object) -> Change:
    return lambda profile: msgspec.structs.replace(
        profile, tokenizer=msgspec.structs.replace(profile.tokenizer, **fields)
    )


@pytest.mark.req("KV-1", "OPS-4")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (changed(backend="other"), "back end"),
        (changed(backend_version="0.3.35"), "0.3.35"),
        (changed(build_digest=b"\1" * 32), "build"),
        (model(architecture="llama"), "architecture"),
        (model(layers=8), "layers"),
        (model(window_tokens=128), "window_tokens"),
        (tokenizer(vocabulary_digest=b"\1" * 32), "vocabulary_digest"),
        (tokenizer(deny_digest=b"\1" * 32), "deny_digest"),
        (tokenizer(control={"bos": 2}), "control"),
        (tokenizer(discipline="none"), "discipline"),
    ],
)
def test_what_is_not_pinned_is_not_run(change: Change, named: str) -> None:
    path, profile = tiny()
    with pytest.raises(ProfileFault, match=named):
        LlamaBackend(path, change(profile))


@pytest.mark.req("OPS-4")
def test_a_file_that_is_no_model_is_a_fault(tmp_path: Path) -> None:
    path, profile = tiny()
    with pytest.raises(WorkerFault, match="no GGUF"):
        LlamaBackend(tmp_path / "missing.gguf", profile)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(WorkerFault, match=r"cut\.gguf"):
        LlamaBackend(cut, profile)
