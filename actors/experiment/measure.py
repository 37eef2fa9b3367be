"""One measured turn: what the client sees, what the receipt says, and what can be compared.

A row is a JSON object. Times are milliseconds; `ttft_ms` is the receipt's (from the worker's queue
to the first token), `ttft_client_ms` runs from the request to the first text of the stream.
`resident_tokens` are in the worker's live streams and `resident_kv_bytes` are their rows, in all
and in the largest (`stream_kv_bytes_max`); `kept_kv_bytes` lie in its other tiers. `device_bytes`
are the weights and what is allocated for rows (`kv_buffer_bytes`), on the device that computes: on
a CPU both are part of the process's memory, as far as it touched them (`worker_rss_bytes`).
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Final

from actors.cli.asked import Failure
from actors.cli.client import Client, segment
from actors.experiment.conversation import Message
from actors.experiment.instance import Instance

Row = dict[str, Any]

_RECEIPT_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.05
_FROM_RECEIPT: Final = (
    *("prompt_tokens", "reused_tokens", "prefilled_tokens", "completion_tokens", "tiers"),
    *("ttft_ms", "queued_ms", "total_ms", "advances", "state_digest", "context_id", "profile_id"),
)


class Turn:
    """What came back from one streamed chat."""

    def __init__(self, client: Client, body: dict[str, Any]) -> None:
        began = time.perf_counter()
        first: float | None = None
        self.response = ""
        pieces: list[str] = []
        with client.stream("/v1/chat/completions", body) as stream:
            self.context = stream.header("Huginn-Context")
            for event in stream.events():
                self.response = event["id"]
                for choice in event["choices"]:
                    piece = choice["delta"].get("content")
                    if piece or choice.get("finish_reason"):
                        first = first or time.perf_counter()
                    pieces.append(piece or "")
        self.text = "".join(pieces)
        self.ttft_ms = None if first is None else (first - began) * 1e3


def measure(
    instance: Instance,
    condition: str,
    prompt: str,
    messages: list[Message],
    *,
    answer_tokens: int,
    key: str | None = None,
) -> tuple[Row, str]:
    """Ask `messages`, greedily, and give the row and the answer's text.

    `prompt` names the messages: rows with the same name are of the same messages. Raises Failure
    where the service refuses.
    """
    client = instance.client(key)
    asked = {"model": instance.model, "messages": messages}
    before = time.perf_counter()
    tokenized = client.post("/v1/tokenize", asked)
    assembly_ms = (time.perf_counter() - before) * 1e3
    body = {**asked, "temperature": 0, "max_tokens": answer_tokens, "stream": True}
    turn = Turn(client, body)
    receipt = receipt_of(client, turn.response)
    instance.wait_quiet()
    stats = instance.stats() or {}
    decoding_ms = receipt["total_ms"] - receipt["ttft_ms"]
    more = receipt["completion_tokens"] - 1
    row = {
        "condition": condition,
        "prompt": prompt,
        "messages": len(messages),
        **{name: receipt[name] for name in _FROM_RECEIPT},
        "blocks": len(receipt["blocks"]),
        "blocks_reused": sum(b["tokens"] == b["reused"] for b in receipt["blocks"]),
        "hit": hit(receipt),
        "ttft_client_ms": turn.ttft_ms,
        "decode_tokens_s": more * 1e3 / decoding_ms if more > 0 and decoding_ms > 0 else None,
        "ids_digest": digest(json.dumps(tokenized["tokens"])),
        "answer": turn.text,
        "answer_digest": digest(turn.text),
        "assembly_ms": assembly_ms,
        "request_bytes": len(json.dumps(body).encode("utf-8")),
        "resident_tokens": stats.get("resident_tokens"),
        **memory_of(stats),
        "kept_kv_bytes": {
            tier: counters.get("bytes") for tier, counters in stats.get("tiers", {}).items()
        },
        "worker_rss_bytes": instance.worker_rss_bytes(),
        "worker": stats,
    }
    if turn.context != receipt["context_id"]:
        raise Failure(f"{condition}: the answer names {turn.context}, its receipt another context")
    return row, turn.text


def memory_of(stats: dict[str, Any]) -> Row:
    """What the worker's counters say of memory, in bytes; None where there is no worker."""
    held = stats.get("stream_kv_bytes")
    return {
        "resident_kv_bytes": None if held is None else sum(held),
        "stream_kv_bytes_max": None if held is None else max(held, default=0),
        "kv_buffer_bytes": stats.get("kv_bytes"),
        "device_bytes": stats.get("device_bytes"),
    }


def hit(receipt: dict[str, Any]) -> str:
    """How much of the prompt's state was there: `none`, `part`, or `all` but the last advance,
    which is fed whatever is there, to have logits."""
    if not receipt["reused_tokens"]:
        return "none"
    return "all" if receipt["advances"] == 1 else "part"


def receipt_of(client: Client, response: str) -> dict[str, Any]:
    """The receipt of `response`, once its state digest is there; without one after half a
    minute."""
    deadline = time.monotonic() + _RECEIPT_SECONDS_MAX
    while True:
        found: dict[str, Any] = client.get(f"/huginn/v1/receipts/{segment(response)}")
        if found["state_digest"] is not None or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)


def digest(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
