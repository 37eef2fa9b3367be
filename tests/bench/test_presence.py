"""The bench of what time tells counts pairs right, and runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import presence


def test_pairs_are_counted() -> None:
    assert presence.told_apart([1, 2, 3, 4], [2, 2, 1, 5]) == 0.625
    assert presence.told_apart([1, 1], [2, 2]) == 1
    assert presence.coin(100) == "0.40 … 0.60"


@pytest.mark.req("AUT-9")
def test_it_runs_and_writes_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "presence.json"
    presence.main(["--rounds", "2", "--json", str(written)])
    rows = json.loads(written.read_text("utf-8"))["rows"]
    assert [row["probe"] for row in rows] == ["another's text", "his own again", "nobody's text"]
    assert all(row["pairs"] == 2 and row["median ms"] > 0 for row in rows)
    assert "his own again" in capsys.readouterr().out
