"""The memo of a whole installation: it fills, agrees with what is computed again, and can go."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.huginn import answered
from tests.installations import Service, tiny_home

MODEL = "tiny-gemma"
TURN = [
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A raven."},
    {"role": "user", "content": "Which one?"},
]


def said(service: Service) -> tuple[Any, ...]:
    """The answer to the turn, and what it was an answer to."""
    body = {"model": MODEL, "messages": TURN, "temperature": 0, "max_tokens": 8}
    answer = service.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    receipt = service.receipt(answer.json()["id"])
    message = answer.json()["choices"][0]["message"]
    return message, receipt["context_id"], receipt["prompt_tokens"], receipt["state_digest"]


def counted(service: Service, verdict: str, count: int) -> dict[str, Any]:
    """The memo, once that was the verdict so often since it began; it was never a conflict."""
    deadline = time.monotonic() + 30
    while True:
        memo: dict[str, Any] = service.get("/huginn/v1/status").json()["muninn"]
        assert set(memo["counters"]) <= {"report inserted", "report already-present"}
        assert (memo["quarantined"], memo["error"]) == (0, None)
        if memo["counters"].get(f"report {verdict}", 0) >= count:
            return memo
        assert time.monotonic() < deadline, memo
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.req("DRV-5", "DRV-7", "ASM-8")
def test_a_memo_that_is_deleted_or_broken_changes_nothing_and_comes_back(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    file = home / "rooms" / "muninn.sqlite"
    service = Service(home)
    # One assembly, and an advance for each message.
    with service:
        first = said(service)
        counted(service, "inserted", 4)
    assert file.exists()

    # Every prefix state is computed anew, by another process: the evidence agrees, page by page.
    shutil.rmtree(home / "pages")
    with service:
        again = said(service)
        counted(service, "already-present", 4)

    _delete(file)
    shutil.rmtree(home / "pages")
    with service:
        without = said(service)
        counted(service, "inserted", 4)
    checked = answered("fsck", home=home)
    assert checked["ok"]
    assert checked["log_entries"] >= 4

    _delete(file)
    file.write_bytes(b"this is no database" * 1000)
    file.chmod(0o600)
    with service:
        broken = said(service)
        memo = service.get("/huginn/v1/status").json()["muninn"]
        assert (memo["enabled"], memo["domains"], memo["error"]) == (False, [], None)
    assert first == again == without == broken


def _delete(file: Path) -> None:
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()
