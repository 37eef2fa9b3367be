"""What this project depends on: declared, explained, and pinned with hashes, all three alike.

It is an audit of what can be checked without a network: that nothing comes in which nobody chose
and nobody gave a reason for, and that what is installed is byte for byte what was locked. Known
vulnerabilities of the locked versions are looked up by whoever updates the lock.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict[str, list[str]]:
    """The direct dependencies as declared: to run, and for each extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"run": table["dependencies"], **table.get("optional-dependencies", {})}
    return {
        group: [canonical(re.split(r"[ \[<>=!~;@]", each, maxsplit=1)[0]) for each in wanted]
        for group, wanted in groups.items()
    }


def entries(lock: str) -> dict[str, str]:
    """Each locked package and the text of its entry."""
    text = (ROOT / lock).read_text()
    starts = [*_PIN.finditer(text)]
    ends = [found.start() for found in starts[1:]] + [len(text)]
    return {
        canonical(found[1]): text[found.start() : end]
        for found, end in zip(starts, ends, strict=True)
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_is_one_version_with_hashes(lock: str) -> None:
    text = (ROOT / lock).read_text()
    wanted = [
        line for line in text.splitlines() if line and not line.startswith((" ", "#", "\t", "-"))
    ]
    assert len(wanted) == len(entries(lock)), "a line that is no pin"
    for name, entry in entries(lock).items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
    assert "http://" not in text


def test_what_is_declared_is_locked() -> None:
    declared = project()
    run, dev = (entries(lock) for lock in LOCKS)
    assert set(declared["run"]) <= set(run)
    assert {name for names in declared.values() for name in names} <= set(run) | set(dev)
    for name in set(run) & set(dev):
        one, other = (_PIN.match(lock[name]) for lock in (run, dev))
        assert one is not None
        assert other is not None
        assert one[2] == other[2], f"{name}: two versions"


def test_what_is_declared_is_explained() -> None:
    explained = {
        canonical(name.strip())
        for row in re.findall(r"^\| (?!-)([^|]+) \|", _explanations(), re.MULTILINE)
        for name in row.split(",")
    }
    declared = {name for names in project().values() for name in names}
    assert declared - explained == set(), "give it a reason in docs/dependencies.md"


def _explanations() -> str:
    return (ROOT / "docs" / "dependencies.md").read_text()
