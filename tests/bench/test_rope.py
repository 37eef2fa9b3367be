from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import rope
from bench.rope import OPERATIONS, SIZES


def test_prints_each_figure_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rope.main(["--sizes", "200", "2000", "--repeats", "2", "--json", str(tmp_path / "rope.json")])
    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "rope.json").read_text(encoding="utf-8"))["rows"]
    for operation in OPERATIONS:
        figures = [row for row in rows if row.get("operation") == operation and "blocks" in row]
        assert [row["blocks"] for row in figures] == [200, 2000]
        assert all(row["rope us"] > 0 and row["list us"] > 0 for row in figures)
        assert f"| {operation} " in printed
    assert SIZES == (1_000, 10_000, 100_000)
