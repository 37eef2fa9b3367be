"""A receipt as JSON: ids as text, times in milliseconds, every tier there.

One of which figures are withheld, because its prompt touched a domain of which its reader may know
nothing, has no field for them: a 0 would say something. `withheld` says that there are such.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.messages.worker import Receipt

_TIERS: Final = ("device", "host", "disk")
_NS_PER_MS: Final = 1_000_000
_OF_REUSE: Final = frozenset(
    {
        "reused_tokens",
        "prefilled_tokens",
        "public_tokens",
        "tiers",
        "pages_verified",
        "pages_refused",
        "state_digest",
        "advances",
        "queued_ms",
        "ttft_ms",
        "total_ms",
    }
)


def receipt_json(receipt: Receipt) -> dict[str, Any]:
    """What `GET /huginn/v1/receipts/{response id}` gives."""
    whole = _whole(receipt)
    if not receipt.withheld:
        return whole
    told = {name: value for name, value in whole.items() if name not in _OF_REUSE}
    for block in told["blocks"]:
        del block["reused"]
    return {**told, "withheld": True}


def _whole(receipt: Receipt) -> dict[str, Any]:
    return {
        "response_id": receipt.response,
        "context_id": None if receipt.context is None else str(receipt.context),
        "profile_id": str(receipt.profile),
        "prompt_tokens": receipt.prompt_tokens,
        "reused_tokens": receipt.reused_tokens,
        "prefilled_tokens": receipt.prefilled_tokens,
        "public_tokens": receipt.public_tokens or 0,
        "completion_tokens": receipt.completion_tokens,
        "tiers": {**dict.fromkeys(_TIERS, 0), **receipt.tiers},
        "pages_verified": receipt.pages_verified,
        "pages_refused": receipt.pages_refused,
        "blocks": [
            {
                "block_id": str(block.block),
                "role": block.role,
                "type": block.type,
                "tokens": block.tokens,
                "reused": block.reused,
            }
            for block in receipt.blocks
        ],
        "state_digest": None if receipt.state_digest is None else str(receipt.state_digest),
        "advances": receipt.advances,
        "queued_ms": receipt.queued_ns / _NS_PER_MS,
        "ttft_ms": receipt.ttft_ns / _NS_PER_MS,
        "total_ms": receipt.total_ns / _NS_PER_MS,
        "finish_reason": receipt.finish,
        "seed": receipt.seed,
        "reproducible": receipt.reproducible,
    }
