"""All that is derived of an installation can go: what follows is the same, but for the time.

Two copies of one data directory, one of them without a byte that is derived, answer alike: the
stateless turn, and the next turn of a session that began before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.happenings import QUESTION, happened
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
TURN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A raven."},
    {"role": "user", "content": "Which one?"},
]
# Page files and their index, evidence and its index, receipts. What is left is what was said and
# who may read it: objects, sessions, events, principals, keys.
DERIVED = ("pages", "rooms/muninn.sqlite", "rooms/worker.sqlite")


def stateless(service: Service) -> dict[str, Any]:
    body = {"model": MODEL, "messages": TURN, "temperature": 0, "max_tokens": 8}
    made = service.post("/v1/chat/completions", body)
    assert made.status_code == 200, made.text
    return _what(service, made.json()["id"], made.json()["choices"][0]["message"]["content"])


def of_session(service: Service, text: str, previous: str | None) -> tuple[str, dict[str, Any]]:
    body = {"model": MODEL, "input": text, "temperature": 0, "max_output_tokens": 8}
    more = {} if previous is None else {"previous_response_id": previous}
    made = service.post("/v1/responses", body | more)
    assert made.status_code == 200, made.text
    answer = made.json()
    said = answer["output"][0]["content"][0]["text"]
    return answer["id"], _what(service, answer["id"], said)


def _what(service: Service, response: str, said: str) -> dict[str, Any]:
    """An answer and its inputs: context, ids of the prompt, the state that they led to."""
    receipt = service.receipt(response)
    shown = service.get(f"/huginn/v1/contexts/{receipt['context_id']}?tokens=1").json()
    kept = ("context_id", "profile_id", "prompt_tokens", "state_digest")
    return {
        "said": said,
        "tokens": shown["tokens"],
        "blocks": shown["blocks"],
        **{name: receipt[name] for name in kept},
    }


@pytest.mark.slow
@pytest.mark.req("ASM-8", "DRV-3", "KV-6")
def test_without_anything_derived_the_same_follows(tmp_path: Path) -> None:
    home, bare = tiny_home(tmp_path / "home"), tmp_path / "bare"
    with Service(home) as service:
        happened(service.url, service.key, "1122")
        before = stateless(service)
        first, _ = of_session(service, QUESTION, None)
    shutil.copytree(home, bare, symlinks=True)
    for name in DERIVED:
        found = [path for path in bare.glob(f"{name}*") if path.exists()]
        assert found, f"{name} is not there to be deleted"
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    outcomes = []
    for place in (home, bare):
        with Service(place) as service:
            _, second = of_session(service, "and?", first)
            outcomes.append((stateless(service), second))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == before
    assert any("1122 merged" in block["content"] for block in outcomes[1][1]["blocks"])
