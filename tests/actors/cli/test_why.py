"""`huginn ctx why`: what the receipt and the difference tell, and no more than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli.why import explain
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


def receipt(*blocks: tuple[int, int], opener: int = 9) -> dict[str, object]:
    """A receipt of blocks (tokens, reused)."""
    reused = sum(block[1] for block in blocks)
    return {
        "prompt_tokens": sum(block[0] for block in blocks) + opener,
        "reused_tokens": reused,
        "prefilled_tokens": sum(block[0] for block in blocks) + opener - reused,
        "blocks": [
            {"role": "user", "tokens": tokens, "reused": reused} for tokens, reused in blocks
        ],
    }


def parted(index: int, token_index: int) -> dict[str, object]:
    first = {"index": index, "reason": "content", "token_index": token_index}
    return {"equal_blocks": index, "first_difference": first, "contracts": []}


EQUAL = {"equal_blocks": 2, "first_difference": None, "contracts": []}


@pytest.mark.parametrize(
    ("blocks", "difference", "index", "reason"),
    [
        ([(10, 10), (5, 5)], None, None, "whole"),
        ([(10, 10), (5, 0)], None, 1, "not-held"),
        ([(10, 10), (5, 0)], EQUAL, 1, "not-held"),
        ([(10, 0), (5, 0)], parted(1, 12), 0, "not-held"),
        ([(10, 10), (500, 256)], parted(1, 300), 1, "content"),
        ([(10, 10), (5, 5), (3, 0)], parted(1, 12), 2, "other-source"),
    ],
)
def test_why_reuse_ended(
    blocks: list[tuple[int, int]], difference: dict[str, object], index: int, reason: str
) -> None:
    found = explain(receipt(*blocks), difference)
    assert (found.index, found.reason) == (index, reason)
    assert found.token_index == sum(block[1] for block in blocks)


def test_an_answer_and_the_one_before(service: Service, home: Path) -> None:
    words = ("--temperature", "0", "--system", "A long system message, shared by both.")
    first = answered("run", "one", *words, home=home, **reach(service))
    second = answered("run", "two", *words, home=home, **reach(service))
    found = answered(
        *("ctx", "why", second["id"], "--against", first["id"]), home=home, **reach(service)
    )
    assert found["receipt"]["response_id"] == second["id"]
    assert found["ended"]["index"] == found["difference"]["first_difference"]["index"]
    assert found["ended"]["reason"] == "content"
    against = ("--against", first["context_id"])
    people = huginn("ctx", "why", second["id"], *against, home=home, **reach(service)).stdout
    assert "Reuse ended after" in people
    assert "the block has other content" in people


def test_a_completion_has_no_context_to_compare(service: Service, home: Path) -> None:
    made = answered("run", "one", "--complete", home=home, **reach(service))
    chat = answered("run", "one", home=home, **reach(service))
    why = ("ctx", "why")
    refused(*why, made["id"], "--against", chat["id"], home=home, code="failed", **reach(service))
    refused(*why, chat["id"], "--against", made["id"], home=home, code="failed", **reach(service))
    assert answered(*why, made["id"], home=home, **reach(service))["difference"] is None
