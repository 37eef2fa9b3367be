"""`kill -9` of everything between two turns: the second finds its prefix on disk."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"


def said(service: Service, messages: list[dict[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer to a turn, and its receipt."""
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 8}
    answer = service.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"], service.receipt(answer.json()["id"])


def pages(home: Path) -> list[Path]:
    return sorted((home / "pages").glob("*/*"))


def written(service: Service) -> None:
    """Wait until every page is on disk."""
    deadline = time.monotonic() + 30
    while True:
        stats = service.worker_stats()
        disk = stats["tiers"]["disk"]
        if disk["written"] == stats["tiers"]["host"]["written"]:
            return
        assert time.monotonic() < deadline, stats
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.req("KV-3", "KV-6", "KV-8")
def test_after_kill_9_the_second_turn_is_warm_and_equals_a_cold_one(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    # No message is longer than the tiny model's window of 64: its rows could not be exported.
    history = [
        {"role": "user" if turn % 2 == 0 else "assistant", "content": f"{turn}: " + "raven " * 6}
        for turn in range(9)
    ]
    service = Service(home)
    with service:
        answer, first = said(service, history)
        assert first["reused_tokens"] == 0
        turn = [*history, answer, {"role": "user", "content": "and now?"}]
        written(service)
        service.kill()
    (pages(home)[0].parent / "half.unfinished").write_bytes(b"half a page")

    with service:
        again, warm = said(service, turn)
        known = first["prompt_tokens"] - first["blocks"][-1]["tokens"] - 8
        assert warm["tiers"]["disk"] == warm["reused_tokens"] > known
        assert warm["pages_verified"] > 0
        assert warm["pages_refused"] == []
        written(service)
        service.kill()
    assert not any(path.name.startswith("half") for path in pages(home))

    # Every page with a byte changed: none is believed, and the answer is the same.
    for path in pages(home):
        body = bytearray(path.read_bytes())
        body[-1] ^= 1
        body[-len(body) // 3] ^= 1
        path.unlink()
        path.write_bytes(body)
    with service:
        bad_answer, bad = said(service, turn)
        assert set(bad["pages_refused"]) == {"seal"}
        assert bad["reused_tokens"] == 0

    shutil.rmtree(home / "pages")
    with service:
        cold_answer, cold = said(service, turn)
        assert cold["reused_tokens"] == 0
    assert again == bad_answer == cold_answer
    assert warm["state_digest"] == bad["state_digest"] == cold["state_digest"]
