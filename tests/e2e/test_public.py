"""What is public, on a service as a user starts it: published, shared, told to whom, withdrawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from store.pages.header import domain_digest
from tests.huginn import answered, refused
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
# Each shorter than the tiny model's window; together worth a restore.
SYSTEM = {"role": "system", "content": "You are a raven of few words and long memory."}
GUIDE = {"role": "user", "content": "The house rules: knock twice, wipe your feet, be kind."}
# What no two answers have in common.
VARYING = ("id", "created")


def chat(service: Service, key: str | None, *messages: dict[str, str]) -> httpx.Response:
    body = {
        "model": MODEL,
        "messages": list(messages),
        "temperature": 0,
        "seed": 7,
        "max_tokens": 6,
        "huginn": {"receipt": True},
    }
    answer = service.post("/v1/chat/completions", body, key)
    assert answer.status_code == 200, answer.text
    return answer


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def new_key(service: Service, name: str, *rights: str) -> str:
    usual = ["advance", "assemble", "generate", "read", "write"]
    made = service.post("/huginn/v1/keys", {"principal": name, "rights": [*usual, *rights]})
    assert made.status_code == 200, made.text
    return str(made.json()["key"])


def publish(service: Service, folder: Path) -> list[str]:
    """Both messages, from files, on the command line."""
    found = []
    for message in (SYSTEM, GUIDE):
        path = folder / message["role"]
        path.write_bytes(message["content"].encode())
        made = answered(
            "publish", str(path), "--role", message["role"], home=service.home, **place(service)
        )
        found.append(made["block_id"])
    return found


def place(service: Service) -> dict[str, str]:
    return {"HUGINN_PORT": str(service.port)}


def counted(service: Service, key: str, *messages: dict[str, str]) -> tuple[int, int, int]:
    """A turn: its prompt's tokens, and how many the worker reused and prefilled for it."""
    service.quiet()
    before = service.worker_stats()
    usage = chat(service, key, *messages).json()["usage"]
    after = service.worker_stats()
    reused = after["reused_tokens"] - before["reused_tokens"]
    return usage["prompt_tokens"], reused, usage["prompt_tokens"] - reused


def told(answer: httpx.Response) -> tuple[Any, ...]:
    """All of an answer but what differs between any two."""
    body = {name: value for name, value in answer.json().items() if name not in VARYING}
    kept = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("date", "x-request-id", "huginn-request-id", "huginn-request")
    }
    return answer.status_code, body, sorted(kept.items())


@pytest.mark.slow
@pytest.mark.req("AUT-5", "AUT-7", "KV-6")
def test_what_is_public_from_published_to_withdrawn(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    folder = home / "pages" / domain_digest("public").hex()
    with Service(home) as service:
        ann, bob = new_key(service, "ann"), new_key(service, "bob")
        seer = new_key(service, "seer", "telemetry")
        question = (SYSTEM, GUIDE, user("What do you see?"))
        # Before: nothing is shared.
        chat(service, ann, *question)
        assert counted(service, bob, *question)[1] == 0
        blocks = publish(service, tmp_path)
        listed = answered("publications", home=home, **place(service))
        assert sorted(row["block_id"] for row in listed) == sorted(blocks)
        refused(
            "publications",
            home=home,
            code="permission_denied",
            HUGINN_API_KEY=ann,
            **place(service),
        )
        # The first after it finds it cold, the second warm: they are told the same.
        cold, warm = new_key(service, "cold"), new_key(service, "warm")
        first = chat(service, cold, *question)
        service.quiet()
        second = chat(service, warm, *question)
        assert told(first) == told(second)
        assert first.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        # The operator sees what of its own first conversation was everybody's already.
        mine = chat(service, None, SYSTEM, GUIDE, user("And I?")).json()
        receipt = service.receipt(mine["id"])
        public = sum(block["tokens"] for block in receipt["blocks"][:2])
        assert receipt["public_tokens"] == receipt["reused_tokens"] == public > 64
        assert [block["reused"] for block in receipt["blocks"][2:]] == [0]
        assert mine["usage"]["prompt_tokens_details"]["cached_tokens"] == public
        assert mine["huginn"]["receipt"]["reused_tokens"] == public
        # Telemetry on one's own domain is not enough for what touched the public one.
        theirs = chat(service, seer, *question).json()
        assert theirs["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        shown = service.get(f"/huginn/v1/receipts/{theirs['id']}", seer).json()
        assert shown["withheld"] is True
        assert not shown.keys() & {"reused_tokens", "tiers", "ttft_ms", "state_digest"}
        own = chat(service, seer, user("a word of my own")).json()
        assert "ttft_ms" in service.get(f"/huginn/v1/receipts/{own['id']}", seer).json()
        service.quiet()
        assert len(list(folder.iterdir())) == 2
    # It is as public after a restart, and what was derived of it is there.
    with Service(home) as service:
        tokens, reused, _ = counted(service, new_key(service, "late"), *question)
        assert reused == public < tokens
        gone = answered("unpublish", blocks[0], home=home, **place(service))
        assert gone["block_id"] == blocks[0]
        assert not folder.exists()
        assert counted(service, new_key(service, "later"), *question)[1] == 0
        service.quiet()
        assert not folder.exists()
        refused("unpublish", blocks[0], home=home, code="not_found", **place(service))
    with Service(home) as service:
        listed = answered("publications", home=home, **place(service))
        assert [row["block_id"] for row in listed] == blocks[1:]
        assert counted(service, new_key(service, "last"), *question)[1] == 0
