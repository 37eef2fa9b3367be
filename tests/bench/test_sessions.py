"""The sessions bench prints its table, and bounds what a turn is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import session_turns, sessions
from tests import tiny_gemma


def test_prints_each_figure_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    written = tmp_path / "sessions.json"
    arguments = ["--sizes", "1000", "2000", "--repeats", "2", "--rounds", "2", "--turns", "3"]
    arguments += ["--folder", str(folder)]
    sessions.main([*arguments, "--model", str(tiny_gemma.cached()), "--json", str(written)])
    printed = capsys.readouterr().out
    assert "Growth exponents" in printed
    assert "begin_turn in the room, 2 rounds" in printed
    rows = json.loads(written.read_text("utf-8"))["rows"]
    rows, growth, turns, turns_growth = rows[:12], rows[12:18], rows[18:22], rows[22:]
    assert [(row["events"], row["persona"]) for row in rows] == [
        (size, persona) for size in (1000, 2000) for persona in ("Timmy",) * 3 + ("Sally",) * 3
    ]
    for row in rows:
        told = {"nothing": 0, "newest 20": 20}.get(row["unseen"])
        assert row["whole"] + row["counted"] == told or row["unseen"] == "everything"
        assert row["tokens"] <= 2048
        assert 0 < row["p50 ms"] <= row["p99 ms"]
    assert len(growth) == 6
    # Sally's one source holds no thousand events yet: her turns read more at the larger size.
    fitted = {(row["persona"], row["unseen"]): "p99" in row for row in growth}
    assert fitted[("Timmy", "everything")]
    assert not fitted[("Sally", "everything")]
    # Turns in the room: what had happened since was told to both, whatever the logs' length.
    sizes = [(size, persona) for size in (1000, 2000) for persona in session_turns.SCOPES]
    assert [(row["events"], row["persona"]) for row in turns] == sizes
    for row in turns:
        assert (row["turns"], row["new"]) == (6, 20)
        assert 0 < row["p50 ms"] <= row["p99 ms"]
        assert row["first ms"] > 0
    assert [row["persona"] for row in turns_growth] == list(session_turns.SCOPES)
    assert all(isinstance(row["p99"], float) for row in turns_growth)
    assert list(folder.iterdir()) == []
