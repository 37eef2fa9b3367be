"""`huginn publish`, `publications` and `unpublish`, against a gateway with a real ropes room."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli.answers import reuse_line
from actors.cli.asked import Failure
from actors.cli.client import Client
from actors.cli.why import _receipt
from tests.fake_rooms import Service
from tests.huginn import answered, huginn, peer, reach, refused


@pytest.mark.req("AUT-5")
def test_a_file_from_published_to_private(service: Service, home: Path, tmp_path: Path) -> None:
    text = tmp_path / "system.txt"
    text.write_text("Be a raven: café.\n", "utf-8")
    operator = reach(service)
    made = answered("publish", str(text), home=home, **operator)
    assert (made["role"], made["content_bytes"]) == ("system", 19)
    example = answered("publish", str(text), "--role", "user", home=home, **operator)
    assert example["block_id"] != made["block_id"]
    rows = answered("publications", home=home, **operator)
    assert sorted(row["block_id"] for row in rows) == sorted(
        each["block_id"] for each in (made, example)
    )
    shown = huginn("publications", home=home, **operator).output
    assert made["block_id"] in shown
    assert "raven" not in shown
    for each in (made, example):
        assert answered("unpublish", each["block_id"], home=home, **operator) == each
    assert answered("publications", home=home, **operator) == []
    refused("unpublish", made["block_id"], home=home, code="not_found", **operator)


def test_people_are_told_in_a_line(service: Service, home: Path, tmp_path: Path) -> None:
    text = tmp_path / "a"
    text.write_text("a line")
    said = huginn("publish", str(text), "--name", "ada", home=home, **reach(service)).output
    assert said.startswith("public: block:")
    assert said.endswith("(6 bytes)\n")
    block = said.split()[1]
    assert huginn("unpublish", block, home=home, **reach(service)).output == (
        f"private again: {block}\n"
    )


def test_what_cannot_be_published(service: Service, home: Path, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"ab\xff")
    assert "not UTF-8 at byte 2" in refused(
        "publish", str(binary), home=home, code="not_text", **reach(service)
    )
    refused("publish", str(tmp_path / "no"), home=home, code="usage", exit_code=2)
    client = reach(service, service.client_key)
    text = tmp_path / "text"
    text.write_text("x")
    for words in (["publish", str(text)], ["publications"], ["unpublish", "block:x"]):
        refused(*words, home=home, code="permission_denied", **client)


@pytest.mark.req("AUT-7")
def test_a_receipt_that_is_withheld_is_told_as_such() -> None:
    line = reuse_line({"withheld": True, "prompt_tokens": 9, "completion_tokens": 2})
    assert "not for this key to know" in line
    body = b'{"response_id": "r", "withheld": true}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with peer(head + body) as base, pytest.raises(Failure, match="operator's key"):
        _receipt(Client(base, "hg-key"), "r")
