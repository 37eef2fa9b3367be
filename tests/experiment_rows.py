"""Rows of an experiment as the tests of its checks and reports make them up."""

from __future__ import annotations

from typing import Any

from actors.experiment.measure import Row


def row(condition: str, prompt: str = "base", **more: Any) -> Row:
    """A row that equals every other of the same prompt, and reused nothing."""
    return {
        "condition": condition,
        "prompt": prompt,
        "prompt_tokens": 2000,
        "reused_tokens": 0,
        "hit": "none",
        "prefilled_tokens": 2000,
        "tiers": {"device": 0, "host": 0, "disk": 0},
        "ttft_ms": 1234.5,
        "ttft_client_ms": 1240.0,
        "decode_tokens_s": None,
        "assembly_ms": 2.25,
        "resident_tokens": 2000,
        "resident_kv_bytes": 7_200_000,
        "stream_kv_bytes_max": 3_600_000,
        "kv_buffer_bytes": 14_700_000,
        "device_bytes": 16_000_000,
        "worker_rss_bytes": 95_000_000,
        "age_s": None,
        "context_id": f"ctx:{prompt}",
        "ids_digest": f"ids-{prompt}",
        "state_digest": f"state:{prompt}",
        "answer_digest": f"answer-{prompt}",
        **more,
    }


def rows() -> list[Row]:
    """A run in which everything holds."""
    warm = {"reused_tokens": 1990, "prefilled_tokens": 10, "hit": "all", "ttft_ms": 12.0}
    return [
        row("cold"),
        row("warm", **warm, tiers={"device": 1990, "host": 0, "disk": 0}),
        row("append", "append", **warm),
        row("other-domain"),
        row("other-process"),
        row("other-process/append", "append"),
    ]
