"""A full disk does not fail a request that keeps nothing, and fakes no keeping of any other.

An embedded installation with its real stores, over a disk that is full, over its quota or broken
when the test says so. The worker is in a process of its own, whose disk is sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from actors.runtime.local import EmbeddedShell
from actors.runtime.plan import prepare
from actors.runtime.world import SystemClock, SystemEntropy
from tests.full_disk import BROKEN, FULL, QUOTA, SwitchedDisk, switched_disk
from tests.installations import tiny_config

CHAT = "/v1/chat/completions"
KEPT = {"stored": False, "reason": "disk_full"}


@dataclass
class Answer:
    status: int
    headers: Any
    body: Any
    text: str


@dataclass
class House:
    """An installation that runs, a client of its operator, and its disk."""

    client: aiohttp.ClientSession
    disk: SwitchedDisk
    model: str

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, path, json=body, headers=named) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return Answer(
                response.status, response.headers, await response.json() if is_json else None, text
            )

    async def chat(self, text: str, **more: Any) -> Answer:
        headers = more.pop("headers", {})
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 4,
            **more,
        }
        return await self.ask("POST", CHAT, body, **headers)

    async def health(self) -> Any:
        return (await self.ask("GET", "/health")).body

    async def until_well(self) -> None:
        async with asyncio.timeout(60):
            while (await self.health())["status"] != "ok":
                await asyncio.sleep(0.05)


@pytest.fixture
def disk() -> Iterator[SwitchedDisk]:
    with switched_disk() as made:
        yield made
        made.refusal = None


@pytest.fixture
async def house(tmp_path: Path, disk: SwitchedDisk) -> AsyncIterator[House]:
    config = tiny_config(tmp_path / "home")
    shell = EmbeddedShell(await prepare(config, SystemClock(), SystemEntropy()))
    await shell.start()
    key = (config.home_path / "operator.key").read_text("ascii").strip()
    headers = {"Authorization": f"Bearer {key}"}
    base = f"http://127.0.0.1:{config.port}"
    try:
        async with aiohttp.ClientSession(base, headers=headers) as client:
            made = House(client, disk, "tiny-gemma")
            async with asyncio.timeout(120):
                while (await made.ask("GET", "/health")).status != 200:
                    await asyncio.sleep(0.05)
            yield made
    finally:
        disk.refusal = None
        await shell.stop()


def refused(answer: Answer) -> None:
    """It was refused as what had to be kept, in words that say how to go on."""
    assert (answer.status, answer.body["error"]["code"]) == (507, "disk_full"), answer.text
    for said in ("disk", "free some space", "durable", "nothing of it was kept"):
        assert said in answer.body["error"]["message"]


@pytest.mark.parametrize("refusal", [FULL, QUOTA])
async def test_what_keeps_nothing_is_answered_and_says_so(house: House, refusal: str) -> None:
    sound = await house.chat("What is new?")
    assert sound.headers["Huginn-Context"].startswith("ctx:")
    assert "Huginn-Stored" not in sound.headers
    assert "huginn" not in sound.body
    house.disk.refusal = refusal
    for number in range(3):
        answer = await house.chat(f"Question {number} that was never asked before")
        assert answer.status == 200, answer.text
        assert answer.body["choices"][0]["message"]["content"] is not None
        # An id would promise that what it names can be read back.
        assert "Huginn-Context" not in answer.headers
        assert answer.headers["Huginn-Stored"] == "false"
        assert answer.body["huginn"] == KEPT
    told = await house.chat("And in the receipt?", huginn={"receipt": True})
    assert told.body["huginn"]["stored"] is False
    assert told.body["huginn"]["receipt"]["context_id"] is None
    stream = await house.chat("And in a stream?", stream=True)
    assert stream.status == 200
    assert stream.headers["Huginn-Stored"] == "false"
    assert stream.text.count('"stored":false') == 1
    assert stream.text.endswith("data: [DONE]\n\n")
    ask = {"model": house.model, "input": "And here?", "store": False, "max_output_tokens": 4}
    response = await house.ask("POST", "/v1/responses", ask)
    assert response.status == 200, response.text
    assert response.body["huginn"] == {
        "session": None,
        "turn": None,
        "context_id": None,
        "stored": False,
        "reason": "disk_full",
    }
    for path, body in (
        ("/v1/completions", {"model": house.model, "prompt": "Hello", "max_tokens": 2}),
        ("/v1/tokenize", {"model": house.model, "messages": [{"role": "user", "content": "n"}]}),
    ):
        assert (await house.ask("POST", path, body)).status == 200
    assert house.disk.refused > 0


async def test_an_answer_is_the_same_as_with_room(house: House) -> None:
    ask = {"temperature": 0, "max_tokens": 12}
    house.disk.refusal = FULL
    without = await house.chat("Say what you see", **ask)
    house.disk.refusal = None
    with_room = await house.chat("Say what you see", **ask)
    assert without.body["choices"] == with_room.body["choices"]
    assert without.body["usage"]["prompt_tokens"] == with_room.body["usage"]["prompt_tokens"]
    # Nothing that was not stored is taken for stored: its context can be read, all of it.
    context = with_room.headers["Huginn-Context"]
    shown = await house.ask("GET", f"/huginn/v1/contexts/{context}?tokens=1")
    assert shown.status == 200, shown.text
    longer = [
        {"role": "user", "content": "Say what you see"},
        {"role": "assistant", "content": with_room.body["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And now?"},
    ]
    after = (await house.chat("", messages=longer)).headers["Huginn-Context"]
    assert (await house.ask("GET", f"/huginn/v1/contexts/{after}")).status == 200


async def test_what_is_to_be_kept_is_refused_whole_and_works_again_at_once(house: House) -> None:
    session = (
        await house.ask("POST", "/huginn/v1/sessions", {"persona": "p", "scope": "all"})
    ).body
    await house.ask("POST", "/huginn/v1/sources", {"name": "mill"})
    turn = {"headers": {"Huginn_Session": session["id"]}}
    assert (await house.chat("One", **turn)).status == 200
    before = (await house.ask("GET", f"/huginn/v1/sessions/{session['id']}")).body
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/v1/responses", {"model": house.model, "input": "x", "max_output_tokens": 2}),
        ("POST", "/huginn/v1/sessions", {"persona": "q", "scope": "all"}),
        ("POST", "/huginn/v1/sources", {"name": "forge"}),
        ("POST", "/huginn/v1/sources/mill/events", {"kind": "Close", "subject": "s", "body": {}}),
        ("POST", "/huginn/v1/keys", {"principal": "ada"}),
        ("POST", "/huginn/v1/contexts", {"messages": [{"role": "user", "content": "kept?"}]}),
    ]
    house.disk.refusal = FULL
    for each in asked:
        refused(await house.ask(*each))
    refused(await house.chat("Two", **turn))
    house.disk.refusal = None
    assert (await house.ask("GET", f"/huginn/v1/sessions/{session['id']}")).body == before
    listed = (await house.ask("GET", "/huginn/v1/keys")).body["data"]
    assert "ada" not in [row["principal"] for row in listed]
    for each in asked:
        answer = await house.ask(*each)
        assert answer.status in (200, 201), answer.text
    assert (await house.chat("Two", **turn)).status == 200


async def test_a_turn_whose_answer_finds_no_room_holds_nobody_up(house: House) -> None:
    """The disk is full when the answer is to be kept, and when the turn is given up too."""
    opened = await house.ask("POST", "/huginn/v1/sessions", {"persona": "p", "scope": "all"})
    session = {"Huginn-Session": opened.body["id"]}
    body = {
        "model": house.model,
        "messages": [{"role": "user", "content": "A long one"}],
        "max_tokens": 400,
        "stream": True,
    }
    async with house.client.post(CHAT, json=body, headers=session) as stream:
        # Told before anything is computed, when the turn has begun.
        assert (await stream.content.readline()).startswith(b"data: ")
        house.disk.refusal = FULL
        rest = (await stream.read()).decode()
    assert '"code":"disk_full"' in rest
    assert "[DONE]" not in rest
    house.disk.refusal = None
    async with asyncio.timeout(15):  # less than the lease
        assert (await house.chat("Next", headers=session)).status == 200


async def test_a_key_that_found_half_its_room_is_made_when_there_is_room(house: House) -> None:
    house.disk.only, house.disk.refusal = "gateway", FULL
    refused(await house.ask("POST", "/huginn/v1/keys", {"principal": "ada"}))
    house.disk.refusal = None
    made = await house.ask("POST", "/huginn/v1/keys", {"principal": "ada"})
    assert made.status == 200, made.text
    bearer = {"Authorization": f"Bearer {made.body['key']}"}
    assert (await house.chat("Who am I?", headers=bearer)).status == 200


async def test_health_is_degraded_until_something_is_kept_again(house: House) -> None:
    assert (await house.health())["status"] == "ok"
    house.disk.refusal = FULL
    await house.chat("Unheard of")
    body = await house.health()
    assert (body["status"], body["code"]) == ("degraded", "disk_full")
    assert "free some space" in body["reason"]
    house.disk.refusal = None
    # Also if nobody asks anything: the gateway finds out by itself.
    await house.until_well()
    house.disk.refusal = FULL
    refused(await house.ask("POST", "/huginn/v1/sessions", {"persona": "p", "scope": "all"}))
    assert (await house.health())["status"] == "degraded"
    house.disk.refusal = None
    assert (await house.chat("Unheard of too")).status == 200
    assert (await house.health())["status"] == "ok"


async def test_control_another_fault_is_an_error(house: House) -> None:
    house.disk.refusal = BROKEN
    answer = await house.chat("Never asked before")
    assert (answer.status, answer.body["error"]["code"]) == (500, "internal_error")
    assert (await house.health())["status"] == "ok"
