"""The verb: what it refuses before anything starts. All of it runs in tests/e2e."""

from __future__ import annotations

from pathlib import Path

from tests.huginn import huginn, refused


def test_out_is_needed(home: Path) -> None:
    refused("experiment", home=home, code="usage", exit_code=2)


def test_wrong_use_is_refused(home: Path, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    for more in (("--tokens", "0"), ("--shell", "other"), ("--seed", "x")):
        refused("experiment", *out, *more, home=home, code="usage", exit_code=2)
    assert not (tmp_path / "out").exists()


def test_an_unknown_profile_starts_nothing(home: Path, tmp_path: Path) -> None:
    words = ("experiment", "--profile", "nothing", "--out", str(tmp_path / "out"))
    result = huginn(*words, home=home)
    assert result.exit_code == 1
    assert "nothing" in result.stderr
    assert not (tmp_path / "out").exists()
