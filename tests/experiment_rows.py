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
    return [
        row("cold"),
        row("warm", **_reused("device")),
        row("append", "append", **_reused("device")),
        row("middle-edit", "edit", **_reused("host", 900)),
        row("branch", "branch", **_reused("host", 1400)),
        row("other-domain"),
        row("evicted", **_reused("host")),
        row("restarted", **_reused("disk")),
        row("other-process"),
        row("other-process/append", "append"),
        row("other-process/middle-edit", "edit"),
        row("other-process/branch", "branch"),
    ]


def _reused(tier: str, tokens: int = 1990) -> dict[str, Any]:
    return {
        "reused_tokens": tokens,
        "prefilled_tokens": 2000 - tokens,
        "hit": "all" if tokens == 1990 else "part",
        "ttft_ms": 12.0,
        "tiers": {"device": 0, "host": 0, "disk": 0} | {tier: tokens},
    }
