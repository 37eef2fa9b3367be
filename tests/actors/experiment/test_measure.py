"""A measured turn: the row agrees with what the service says, and with itself."""

from __future__ import annotations

import hashlib

import pytest

from actors.cli.asked import Failure
from actors.experiment.instance import Instance
from actors.experiment.measure import Turn, digest, hit, measure, memory_of

MESSAGES = [{"role": "user", "content": "The river opens early."}]


def test_cold_and_warm_rows(instance: Instance) -> None:
    key = instance.key_of("measured")
    cold, text = measure(instance, "cold", "base", MESSAGES, answer_tokens=5, key=key)
    warm, again = measure(instance, "warm", "base", MESSAGES, answer_tokens=5, key=key)
    assert cold["reused_tokens"] == 0
    assert warm["prefilled_tokens"] + warm["reused_tokens"] == warm["prompt_tokens"]
    assert sum(cold["tiers"].values()) == cold["reused_tokens"]
    for field in ("context_id", "ids_digest", "state_digest", "answer_digest", "profile_id"):
        assert cold[field] == warm[field] is not None
    assert text == again
    assert cold["answer_digest"] == hashlib.sha256(text.encode()).hexdigest()
    assert cold["completion_tokens"] == 5
    assert cold["decode_tokens_s"] > 0
    assert cold["ttft_client_ms"] >= cold["ttft_ms"] > 0
    assert cold["resident_tokens"] >= cold["prompt_tokens"]
    assert cold["worker_rss_bytes"] > 10_000_000
    per_token = cold["resident_kv_bytes"] / cold["resident_tokens"]
    assert per_token == warm["resident_kv_bytes"] / warm["resident_tokens"] > 0
    assert cold["stream_kv_bytes_max"] >= cold["prompt_tokens"] * per_token
    assert cold["resident_kv_bytes"] <= cold["kv_buffer_bytes"] < cold["device_bytes"]
    assert cold["request_bytes"] > len(MESSAGES[0]["content"])
    assert cold["blocks"] == cold["messages"] == 1


def test_the_turn_is_a_stream_with_a_context(instance: Instance) -> None:
    body = {"model": instance.model, "messages": MESSAGES, "temperature": 0, "max_tokens": 3}
    turn = Turn(instance.client(), {**body, "stream": True})
    whole = instance.client().post("/v1/chat/completions", body)
    assert turn.text == whole["choices"][0]["message"]["content"]
    assert turn.context is not None
    assert turn.context.startswith("ctx:")


def test_what_is_refused_is_a_failure(instance: Instance) -> None:
    with pytest.raises(Failure):
        measure(instance, "cold", "base", [], answer_tokens=5)


@pytest.mark.parametrize(
    ("reused", "advances", "what"),
    [(0, 1, "none"), (0, 9, "none"), (90, 1, "all"), (90, 2, "part")],
)
def test_how_much_was_there(reused: int, advances: int, what: str) -> None:
    assert hit({"reused_tokens": reused, "advances": advances}) == what


def test_digests_of_any_text() -> None:
    assert digest("") == hashlib.sha256().hexdigest()
    assert digest("\ud800") != digest("\ud801")


@pytest.mark.req("KV-11")
def test_memory_is_told_in_bytes_or_not_at_all() -> None:
    stats = {"stream_kv_bytes": [30, 0, 20], "kv_bytes": 400, "device_bytes": 900}
    assert memory_of(stats) == {
        "resident_kv_bytes": 50,
        "stream_kv_bytes_max": 30,
        "kv_buffer_bytes": 400,
        "device_bytes": 900,
    }
    assert set(memory_of({}).values()) == {None}
