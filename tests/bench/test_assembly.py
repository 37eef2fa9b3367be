"""The bench runs, compares ids with the peer's, and writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import assembly
from tests import default_gemma


@pytest.mark.model
def test_prints_each_figure_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "assembly.json"
    weights = str(default_gemma.path())
    assembly.main(
        ["--sizes", "300", "3000", "--repeats", "2", "--json", str(written), "--model", weights]
    )
    printed = capsys.readouterr().out
    *rows, growth = json.loads(written.read_text(encoding="utf-8"))["rows"]
    assert [row["tokens"] > size for row, size in zip(rows, (300, 3_000), strict=True)] == [
        True
    ] * 2
    assert all(row[f"{name} ms"] > 0 for row in rows for name in ("ours", "cold", "peer"))
    assert set(growth) == {"ours", "cold", "peer"}
    assert "Growth exponents" in printed
    assert assembly.SIZES == (1_000, 10_000, 100_000)


def test_both_forms_of_the_conversation_grow_together() -> None:
    conversation = assembly.Conversation(seed=1)
    conversation.turn()
    roles = [message["role"] for message in conversation.messages]
    assert roles == ["user", "assistant", "user"]
    assert [text for _, text in conversation.pairs] == [
        message["content"] for message in conversation.messages
    ]
    assert len(conversation.ids) == len(conversation.blocks) == 3
