"""What a spot check means; that whole installations are checked stands in the end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli.asked import Failure
from actors.cli.spot_check import OUTCOMES, UNCHECKED, outcome_of, succeeded
from tests.huginn import refused


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("equal", "equal"),
        ("already-present", "equal"),
        ("conflict", "different"),
        ("expired", "expired"),
        ("unknown", "unknown"),
    ],
)
def test_what_the_memo_says_is_what_is_told(verdict: str, outcome: str) -> None:
    assert outcome_of({"result": verdict, "reason": None}) == outcome
    assert outcome in OUTCOMES


@pytest.mark.parametrize("verdict", ["refused", "not-remembered", "capacity", "inserted"])
def test_a_check_that_is_not_taken_is_a_failure(verdict: str) -> None:
    with pytest.raises(Failure, match="HUGINN_HOME has to name"):
        outcome_of({"result": verdict, "reason": "a key that does not count"})


@pytest.mark.req("DRV-4")
@pytest.mark.parametrize(
    ("counts", "ok"),
    [
        ({}, True),
        ({"equal": 1}, True),
        ({"equal": 9, "expired": 3, "skipped": 1, "unknown": 1}, True),
        ({"equal": 9, "different": 1}, False),
        # Lost inputs are never success.
        ({"expired": 3}, False),
        ({"skipped": 3}, False),
        # So is what started from other pages.
        ({"incomparable": 3}, False),
        ({"equal": 1, "incomparable": 3}, True),
        ({"unknown": 1}, False),
    ],
)
def test_only_what_was_compared_and_equal_is_success(counts: dict[str, int], ok: bool) -> None:
    assert succeeded(counts) is ok


@pytest.mark.req("DRV-4", "KV-2")
def test_what_cannot_be_compared_is_told_and_no_check() -> None:
    assert set(UNCHECKED) < set(OUTCOMES)
    assert not set(UNCHECKED) & {"equal", "different", "expired", "unknown"}


def test_one_thing_at_a_time(home: Path) -> None:
    for words in (("ctx:a", "--sample", "1"), ("--profile", "x", "--sample", "1")):
        refused("verify", *words, home=home, code="usage", exit_code=2)
    refused("verify", "ctx:a", "--seed", "1", home=home, code="usage", exit_code=2)
    refused("verify", "--sample", "0", home=home, code="usage", exit_code=2)
