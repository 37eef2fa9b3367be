from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import events
from bench.events import PAGE_EVENTS, SIZES, Writer
from protocol.event_log import SourceLog, Verdict


def test_prints_each_figure_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    places = ["--folder", str(folder), "--json", str(tmp_path / "events.json")]
    events.main(["--seconds", "0.1", "--sizes", "300", "600", "--repeats", "2", *places])
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "events.json").read_text(encoding="utf-8"))
    appends = [row for row in written["rows"] if "path" in row]
    assert [(row["path"], row["callers"]) for row in appends] == [
        ("raw sync", 1),
        ("event append", 1),
        ("event append", 32),
    ]
    pages = [row for row in written["rows"] if "path" not in row]
    assert [row["events"] for row in pages] == [300, 600]
    for row in written["rows"]:
        assert 0 < row["p50 us"] <= row["p99 us"]
    assert isinstance(written["page_growth"], float)
    assert "Growth exponent" in printed
    assert "| event append " in printed
    assert list(folder.iterdir()) == []
    assert SIZES == (1_000, 10_000, 100_000)
    assert min(SIZES) > PAGE_EVENTS


def test_what_is_measured_is_a_real_log() -> None:
    writer = Writer(1)
    log = SourceLog(writer.signer.public, id_at=lambda seq: None)
    for _ in range(5):
        (outcome,) = log.offer(writer.next().body)
        assert outcome.verdict is Verdict.ACCEPTED
