"""A receipt as JSON has every field that is promised."""

from __future__ import annotations

import pytest

from actors.gateway.http.receipt_json import receipt_json
from protocol.ids import BlockId, ContextId, StateId
from protocol.messages.worker import BlockReceipt, Receipt
from tests.scripted_worker import PROFILE_ID


def receipt(**changes: object) -> Receipt:
    fields: dict[str, object] = {
        "response": "chatcmpl-1",
        "profile": PROFILE_ID,
        "prompt_tokens": 9,
        "reused_tokens": 4,
        "prefilled_tokens": 5,
        "completion_tokens": 2,
        "tiers": {"disk": 4},
        "pages_verified": 2,
        "pages_refused": ["digest"],
        "blocks": [
            BlockReceipt(
                block=BlockId(bytes(32)), role="user", type="user turn", tokens=9, reused=4
            )
        ],
        "advances": 1,
        "queued_ns": 500_000,
        "ttft_ns": 1_500_000,
        "total_ns": 2_000_000,
        "finish": "stop",
        "seed": 3,
        "reproducible": True,
    }
    return Receipt(**(fields | changes))  # type: ignore[arg-type]


def test_ids_are_text_times_milliseconds_and_every_tier_is_there() -> None:
    context, digest = ContextId(bytes(32)), StateId(bytes(32))
    made = receipt_json(receipt(context=context, state_digest=digest))
    assert made["context_id"] == str(context)
    assert made["state_digest"] == str(digest)
    assert made["profile_id"] == str(PROFILE_ID)
    assert made["tiers"] == {"device": 0, "host": 0, "disk": 4}
    assert (made["pages_verified"], made["pages_refused"]) == (2, ["digest"])
    assert made["ttft_ms"] == 1.5
    assert made["blocks"] == [
        {
            "block_id": str(BlockId(bytes(32))),
            "role": "user",
            "type": "user turn",
            "tokens": 9,
            "reused": 4,
        }
    ]


def test_what_is_not_known_yet_is_null() -> None:
    made = receipt_json(receipt())
    assert made["state_digest"] is None
    assert made["context_id"] is None


@pytest.mark.req("AUT-7")
def test_what_is_withheld_has_no_field() -> None:
    """A 0 would say that nothing was reused."""
    whole = receipt_json(receipt(public_tokens=3))
    assert whole["public_tokens"] == 3
    assert "withheld" not in whole
    told = receipt_json(receipt(withheld=True))
    assert told.keys() == {
        "response_id",
        "context_id",
        "profile_id",
        "prompt_tokens",
        "completion_tokens",
        "blocks",
        "finish_reason",
        "seed",
        "reproducible",
        "withheld",
    }
    assert told["withheld"] is True
    assert told["blocks"][0].keys() == {"block_id", "role", "type", "tokens"}
