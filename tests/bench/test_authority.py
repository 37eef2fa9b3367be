"""The bench of authority prints every figure that it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import authority


def test_prints_each_figure_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "authority.json"
    authority.main(["--repeats", "5", "--turns", "2", "--json", str(path)])
    printed = capsys.readouterr().out
    *rows, turn = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["links"] for row in rows] == list(authority.LINKS)
    for row in rows:
        assert all(row[column] > 0 for column in authority.COLUMNS)
    assert turn["messages"] >= 2
    assert turn["share"] > 0
    assert "cold/cached" in printed
    assert "share" in printed
