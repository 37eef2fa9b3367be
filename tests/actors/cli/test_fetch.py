"""What `up` gets before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli.asked import Asked
from actors.cli.fetch import ensure_library, ensure_weights, is_built
from profiles import loader
from protocol.errors import ProfileFault

ASKED = Asked(json=False)


def test_weights_that_are_here_are_verified(
    tiny_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = loader.load("tiny-gemma")
    path = ensure_weights(spec, tiny_home, ASKED)
    assert path == tiny_home / "models" / "tiny-gemma.gguf"
    assert capsys.readouterr().err == ""
    path.write_bytes(b"another file")
    with pytest.raises(ProfileFault, match="delete the file"):
        ensure_weights(spec, tiny_home, ASKED)


def test_weights_without_a_source_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProfileFault, match=r"tiny-gemma\.gguf is not there"):
        ensure_weights(loader.load("tiny-gemma"), home, ASKED)
    said = capsys.readouterr()
    assert said.out == ""
    assert "fetching tiny-gemma (1.2 MB)" in said.err


def test_the_library_is_built_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert is_built()
    ensure_library(ASKED)
    assert capsys.readouterr() == ("", "")
