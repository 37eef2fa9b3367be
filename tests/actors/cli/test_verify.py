"""`huginn verify`: a profile's evidence, a context's messages, and what is unequal by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.cli.asked import Failure
from actors.cli.verify import compare, keep, messages_of
from actors.gateway.messages import Message, message_blocks
from tests.huginn import answered, huginn, refused


def shown(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a chat, as the API shows them."""
    import msgspec

    blocks = message_blocks(msgspec.convert(messages, list[Message]))
    return [
        {
            "role": new.block.role.value,
            "type": new.block.type.value,
            "rendering": new.block.rendering,
            "trust": new.block.trust,
            "name": new.block.name,
            "content": new.content.decode(),
        }
        for new in blocks
    ]


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Which river?", "name": "ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "the Seine"},
    {"role": "assistant", "content": "The Seine."},
    {"role": "user", "content": ""},
]


def test_blocks_and_messages_are_one_to_one() -> None:
    blocks = shown(CHAT)
    assert messages_of(blocks) == CHAT
    assert shown(messages_of(blocks)) == blocks


def test_a_block_that_no_message_makes_is_refused() -> None:
    blocks = shown(CHAT)
    blocks[1]["type"] = "file"
    with pytest.raises(Failure, match="block 1"):
        messages_of(blocks)


ANSWER = {"receipt": {"profile_id": "profile:a", "state_digest": "state:b"}, "first": [65]}
COLD = {
    "profile_id": "profile:a",
    "tokens": [2, 7, 8, 105],
    "opener_tokens": 1,
    "state_digest": "state:b",
    "first_bytes": [65],
    "stops": False,
}


def unequal(answer: dict[str, Any], tokens: list[int], cold: dict[str, Any]) -> list[str]:
    return [row["what"] for row in compare(answer, tokens, cold) if not row["equal"]]


@pytest.mark.req("KV-2")
def test_what_is_unequal_is_named() -> None:
    assert unequal(ANSWER, [2, 7, 8], COLD) == []
    assert unequal(ANSWER, [2, 7, 9], COLD) == ["token ids"]
    assert unequal(ANSWER, [2, 7, 8], COLD | {"state_digest": "state:c"}) == ["state"]
    assert unequal(ANSWER, [2, 7, 8], COLD | {"first_bytes": [66]}) == ["first token"]
    assert unequal(ANSWER, [2, 7, 8], COLD | {"stops": True}) == ["first token"]
    assert unequal(ANSWER | {"first": None}, [2, 7, 8], COLD | {"stops": True}) == []
    assert unequal(ANSWER, [2, 7, 8], COLD | {"profile_id": "profile:z"}) == ["profile"]
    lost = {"receipt": {"profile_id": "profile:a", "state_digest": None}, "first": [65]}
    assert unequal(lost, [2, 7, 8], COLD | {"state_digest": None}) == ["state"]


@pytest.mark.req("KV-2")
def test_states_that_are_not_promised_to_be_equal_are_not_compared() -> None:
    token = COLD | {"equality": "token", "state_digest": "state:c"}
    assert unequal(ANSWER, [2, 7, 8], token) == []
    assert [row["what"] for row in compare(ANSWER, [2, 7, 8], token)] == [
        "profile",
        "token ids",
        "first token",
    ]
    assert unequal(ANSWER, [2, 7, 8], token | {"first_bytes": [66]}) == ["first token"]
    assert unequal(ANSWER, [2, 7, 8], token | {"equality": "bitwise"}) == ["state"]


@pytest.mark.req("KV-1", "KV-2")
def test_a_profile_is_tried_and_the_evidence_kept(tiny_home: Path) -> None:
    found = answered("verify", "--profile", "tiny-gemma", home=tiny_home)
    assert found["ok"]
    assert [each["ok"] for each in found["fixtures"]] == [True] * 6
    path = tiny_home / "verified" / f"{found['profile_id']}.json"
    assert found["path"] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    kept = json.loads(path.read_text())
    assert kept == {name: value for name, value in found.items() if name != "path"}
    assert len(bytes.fromhex(kept["build_digest"])) == 32

    again = huginn("verify", "--profile", "tiny-gemma", home=tiny_home)
    assert again.exit_code == 0
    assert again.stdout.count("ok     ") == 6
    assert kept["build_digest"] in again.stdout
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]


def test_evidence_replaces_evidence(home: Path) -> None:
    first = keep(home, {"profile_id": "profile:a", "ok": False})
    assert keep(home, {"profile_id": "profile:a", "ok": True}) == first
    assert json.loads(first.read_text())["ok"] is True


def test_one_thing_at_a_time(home: Path) -> None:
    refused("verify", home=home, code="usage", exit_code=2)
    refused("verify", "ctx:a", "--profile", "tiny-gemma", home=home, code="usage", exit_code=2)
