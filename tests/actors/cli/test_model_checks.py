"""The checks of the model, on the tiny one."""

from __future__ import annotations

from pathlib import Path

from actors.cli.checks import Finding, examine
from actors.cli.model_checks import model_checks
from actors.config import load
from tests import tiny_gemma


def found(home: Path, profile: str = "tiny-gemma") -> dict[str, Finding]:
    config = load({"home": str(home), "profile": profile}, {}).config
    return {finding.name: finding for finding in examine(model_checks(config))}


def test_a_model_as_pinned(tiny_home: Path) -> None:
    findings = found(tiny_home)
    assert {each.state for each in findings.values()} == {"ok"}
    assert "no forged control token" in findings["template"].detail


def test_no_model(home: Path) -> None:
    findings = found(home)
    assert {each.state for each in findings.values()} == {"warn"}
    assert findings["model"].cure == "huginn models pull tiny-gemma"


def test_a_profile_that_is_not_there(home: Path) -> None:
    assert {each.state for each in found(home, "crow").values()} == {"fail"}


def test_a_profile_of_another_vocabulary(tiny_home: Path, tmp_path: Path) -> None:
    """The pinned weights, and a tokenizer contract that is not theirs."""
    from profiles import loader

    shipped = Path(loader.__file__).with_name("tiny-gemma.toml").read_text("utf-8")
    digest = loader.load("tiny-gemma").tokenizer.deny_digest
    other = tmp_path / "tiny-gemma.toml"
    other.write_text(shipped.replace(digest, "0" * 64), encoding="utf-8")
    finding = found(tiny_home, str(other))["tokenizer"]
    assert (finding.state, finding.detail) == ("fail", "not the pinned contract")
    assert tiny_gemma.cached().exists()
