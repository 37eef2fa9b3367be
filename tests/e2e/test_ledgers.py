"""Both ledgers of an installation as a user starts it, over HTTP.

Charged are an answer that is asked, all tokens of its prompt, and the tokens of the answer. What
was found warm, one's own or everybody's, on the device or on disk after a restart, is in the
operator's physical ledger and in nobody's charge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.huginn import answered
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
# What is published after a while, and what is asked behind it.
SYSTEM = {"role": "system", "content": "You are a raven of few words and long memory."}
PROMPT = [SYSTEM, {"role": "user", "content": "The house rules: knock twice. What do you see?"}]
COUNTED = ("answers", "prompt_tokens", "answer_tokens", "derivations")
USUAL = ["advance", "assemble", "generate", "read", "write"]


class Bill(NamedTuple):
    """What one answer was charged, by the principal's own report, and how many tokens were
    prefilled for it."""

    charged: dict[str, int]
    prefilled: int


def new_key(service: Service, name: str) -> str:
    made = service.post("/huginn/v1/keys", {"principal": name, "rights": USUAL})
    assert made.status_code == 200, made.text
    return str(made.json()["key"])


def ledger(service: Service, which: str, key: str | None = None) -> list[dict[str, Any]]:
    answer = service.get(f"/huginn/v1/ledgers/{which}", key)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["data"]
    return rows


def charged(service: Service, name: str, key: str) -> dict[str, int]:
    """The principal's own report, which is the operator's of it."""
    (mine,) = ledger(service, "logical", key)
    assert mine["principal"] == name
    theirs = [row for row in ledger(service, "logical") if row["principal"] == name]
    # Who has never asked is on nobody's report but its own.
    assert theirs == ([mine] if mine["answers"] else [])
    return {kind: mine[kind] for kind in COUNTED}


def prefilled(service: Service) -> int:
    (row,) = ledger(service, "physical")
    return int(row["prefilled_tokens"])


def billed(service: Service, name: str, key: str) -> Bill:
    """The prompt, asked once."""
    service.quiet()
    before, was = charged(service, name, key), prefilled(service)
    body = {"model": MODEL, "messages": PROMPT, "temperature": 0, "seed": 7, "max_tokens": 6}
    answer = service.post("/v1/chat/completions", body, key)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    after = charged(service, name, key)
    bill = Bill({kind: after[kind] - before[kind] for kind in COUNTED}, prefilled(service) - was)
    assert bill.charged == {
        "answers": 1,
        "prompt_tokens": usage["prompt_tokens"],
        "answer_tokens": usage["completion_tokens"],
        "derivations": 0,
    }
    return bill


@pytest.mark.slow
@pytest.mark.req("AUT-6", "DRV-6")
def test_the_same_prompt_is_charged_the_same_whatever_was_warm(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    bills: dict[str, Bill] = {}
    with Service(home) as service:
        ann, bob = new_key(service, "ann"), new_key(service, "bob")
        bills["ann, cold"] = billed(service, "ann", ann)
        bills["ann, warm"] = billed(service, "ann", ann)
        bills["bob, cold"] = billed(service, "bob", bob)
        path = tmp_path / "system"
        path.write_text(SYSTEM["content"], "utf-8")
        place = {"HUGINN_PORT": str(service.port)}
        answered("publish", str(path), "--role", "system", home=home, **place)
        bills["carol, cold"] = billed(service, "carol", new_key(service, "carol"))
        # Another's warmth: what is everybody's.
        bills["dave, warm"] = billed(service, "dave", new_key(service, "dave"))
        service.quiet()
        before = charged(service, "ann", ann)
    with Service(home) as service:
        assert charged(service, "ann", ann) == before
        bills["ann, restart"] = billed(service, "ann", ann)
        refused = service.get("/huginn/v1/ledgers/physical", ann)
        assert refused.status_code == 403
    first = bills["ann, cold"]
    assert {name: bill.charged for name, bill in bills.items()} == dict.fromkeys(
        bills, first.charged
    )
    # The control: what it took was another thing for the warm. A few tokens more than those of the
    # prompt may be those of an answer that is settled meanwhile.
    tokens = first.charged["prompt_tokens"]
    took = {name: bill.prefilled >= tokens for name, bill in bills.items()}
    assert took == {name: name.endswith("cold") for name in bills}
