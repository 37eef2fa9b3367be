"""`huginn ctx`, against real ropes and assembler rooms."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


def context(service: Service, home: Path, text: str, *words: str) -> str:
    made = answered("run", text, *words, home=home, **reach(service))
    return str(made["context_id"])


def test_show(service: Service, home: Path) -> None:
    shown = context(service, home, "What is [bold]up[/bold]?", "--system", "Be brief.")
    found = answered("ctx", "show", shown, home=home, **reach(service))
    assert [block["role"] for block in found["blocks"]] == ["system", "user"]
    assert found["context_id"] == shown
    people = huginn("ctx", "show", shown, home=home, **reach(service)).stdout
    assert shown in people
    assert "What is [bold]up[/bold]?" in people


def test_long_content_is_cut_unless_asked_for(service: Service, home: Path) -> None:
    shown = context(service, home, "word " * 40 + "end")
    short = huginn("ctx", "show", shown, home=home, **reach(service)).stdout
    full = huginn("ctx", "show", shown, "--full", home=home, **reach(service)).stdout
    assert "…" in short
    assert "end" not in short
    assert "end" in full


def test_tree(service: Service, home: Path) -> None:
    shown = context(service, home, "a tree")
    found = answered("ctx", "tree", shown, home=home, **reach(service))
    assert found["nodes"][0]["node_id"] == found["root"]
    people = huginn("ctx", "tree", shown, home=home, **reach(service)).stdout
    assert found["root"] in people
    assert found["nodes"][0]["children"][0] in people


def test_tokens(service: Service, home: Path) -> None:
    shown = context(service, home, "some tokens")
    found = answered("ctx", "tokens", shown, home=home, **reach(service))
    assert found["count"] == len(found["tokens"]) > 0
    people = huginn("ctx", "tokens", shown, home=home, **reach(service)).stdout
    assert [int(word) for word in people.split()] == found["tokens"]
    assert people.count("\n") == 1


def test_diff(service: Service, home: Path) -> None:
    a = context(service, home, "one", "--system", "s")
    b = context(service, home, "two", "--system", "s")
    same = answered("ctx", "diff", a, a, home=home, **reach(service))
    assert (same["equal_blocks"], same["first_difference"]) == (2, None)
    other = answered("ctx", "diff", a, b, home=home, **reach(service))
    assert other["equal_blocks"] == 1
    assert other["first_difference"]["reason"] == "content"
    assert "equal: 2 blocks" in huginn("ctx", "diff", a, a, home=home, **reach(service)).stdout
    people = huginn("ctx", "diff", a, b, home=home, **reach(service)).stdout
    assert "part at block 1" in people


@pytest.mark.parametrize("words", [["show"], ["tree"], ["tokens"], ["diff", "ctx:a"], ["why"]])
def test_an_unknown_id_is_one_answer(words: list[str], service: Service, home: Path) -> None:
    refused("ctx", *words, "ctx:nothing", home=home, code="not_found", **reach(service))


def test_an_id_grants_nothing(service: Service, home: Path) -> None:
    shown = context(service, home, "mine")
    client = reach(service, service.client_key)
    refused("ctx", "show", shown, home=home, code="not_found", **client)


@pytest.mark.req("DRV-6")
def test_origin(service: Service, home: Path) -> None:
    shown = context(service, home, "Who says so?")
    deadline = time.monotonic() + 60
    while (result := huginn("ctx", "origin", shown, home=home, **reach(service))).exit_code:
        assert time.monotonic() < deadline, result.output
        time.sleep(0.05)
    found = answered("ctx", "origin", shown, home=home, **reach(service))
    assert (found["executor"], found["verified"]) == ("assembler", 0)
    assert found["outputs"][0] == {"label": "context", "id": shown}
    for told in (found["invocation_id"], shown, "assembler (huginn", "0 times"):
        assert told in result.stdout
    refused("ctx", "origin", "ctx:nothing", home=home, code="not_found", **reach(service))
