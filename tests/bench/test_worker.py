"""The worker's bench, on the tests' model: its rows, and that both sides decode alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import worker
from bench.worker_decode import Rates, Spent, decode_rates
from tests.exact_models import MODELS
from tests.tiny_gemma import LAYERS, WINDOW_TOKENS
from tests.worker_rooms import opened

# A layer's keys and values: one head of 64 each, in two bytes.
TOKEN_BYTES = LAYERS * 2 * 64 * 2


def test_a_whole_run_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "found.json"
    asked = ["--tiny", "--blocks", "40", "--history", "200", "--rounds", "3", "--repeats", "1"]
    worker.main([*asked, "--gap", "0.01", "--conversations", "2", "--json", str(found)])
    rows = json.loads(found.read_text("utf-8"))["rows"]
    assert [row["what"] for row in rows] == [
        "cold, blocks of 40",
        "cold, after a gap, blocks of 40",
        "warm, blocks of 40",
        "warm, not settled, blocks of 40",
        "warm, after a gap, blocks of 40",
        "export of a page",
        "decode, 1 at once, tiny-gemma",
        "decode, 3 at once, tiny-gemma",
        "decode, 8 at once, tiny-gemma-throughput",
        "bytes on disk of a turn behind 460 tokens",
    ]
    # The answer that was not settled is fed with the turn.
    assert [row["tokens"] for row in rows[2:5]] == [24, 24 + 40, 24]
    # How much of so short an answer is timed is the machine's affair; the bare side is whole.
    for row in rows[6:9]:
        assert row["pairs"] == 1
        assert row["bare tokens/s"] > 0
        assert row["worker x bare"] >= 0
        assert row["worker x bare, cpu"] >= 0
    wrote = rows[9]
    assert wrote["tokens"] == 24 + 40
    assert wrote["KV bytes"] == 64 * TOKEN_BYTES
    assert 1 < wrote["pages/KV"] <= wrote["worst"] <= 1.05
    assert wrote["page bytes"] == pytest.approx(wrote["pages/KV"] * wrote["KV bytes"], abs=1)
    assert 0 <= wrote["index/KV"] < wrote["pages/KV"]
    # The full-attention rows of every token once more, and the sliding ones of the last window.
    rows_bytes = (460 * 1 + WINDOW_TOKENS * (LAYERS - 1)) * TOKEN_BYTES / LAYERS
    assert rows_bytes < wrote["whole state bytes"] < 1.05 * rows_bytes
    assert wrote["whole state/KV"] == wrote["whole state bytes"] / wrote["KV bytes"]
    printed = capsys.readouterr().out
    assert all(row["what"] in printed for row in rows)


def test_a_first_token_is_of_medians_and_its_ratio_of_pairs() -> None:
    """Three pairs on a machine that slows down: each ratio is of its own pair."""
    pairs = [
        worker.Pair("warm", 24, (slow * over, slow), (float(slow), slow / over), 10.0 * slow)
        for slow, over in ((1, 1.25), (10, 1.0), (100, 0.5))
    ]
    row = worker._row("some", pairs)
    assert (row["worker s"], row["bare s"], row["tokens/cpu s"]) == (10, 10, 2.4)
    assert (row["worker/bare"], row["worst"], row["worker/bare cpu"]) == (1.0, 1.25, 1.0)
    assert row["cold/warm"] == 100


def test_a_row_is_of_medians_and_its_ratio_of_pairs() -> None:
    """Three pairs on a machine that slows down: each ratio is of its own pair."""
    pairs = [
        (Spent(100, 1.0 * slow, 0.5 * slow), Spent(90, share * slow, share * slow))
        for slow, share in ((1, 0.9), (10, 1.8), (100, 0.45))
    ]
    row = Rates(pairs).row("some")
    assert row["pairs"] == 3
    assert row["worker tokens/s"] == pytest.approx(10)
    assert row["worker x bare"] == pytest.approx(1.0)
    assert row["worker x bare, cpu"] == pytest.approx(2.0)


async def test_full_groups_are_timed_and_the_back_end_is_left_as_it_was() -> None:
    model = MODELS["tiny"]
    profile = model.throughput_profile()
    backend = model.open(profile)
    ids = backend.tokenizer.encode("the hen and the ring " * 40)
    async with opened(backend, chunk_tokens=model.chunk_tokens, reproducible=False) as bench:
        rates = await decode_rates(bench, ids, 8, rounds=6, repeats=2)
        assert [bare.tokens for _, bare in rates.pairs] == [48, 48]
        assert all(0 <= spent.tokens <= 8 * (6 + 16) for spent, _ in rates.pairs)
        assert [backend.length(stream) for stream in range(8)] == [0] * 8
        answer = await bench.answer(worker._blocks(ids, 40, 40), stop_ids=[], tokens_max=3)
        assert len(answer.ids) == 3
