"""Matrix over the real service: a turn there knows what happened, and a message has one reply even
where the service is killed at its work."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.happenings import QUESTION, happened
from tests.installations import Service, tiny_home
from tests.matrix.people import Person
from tests.matrix.synapse import Synapse

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("HUGINN_CRASH_ROUNDS", "1"))
TOLD = "1122 merged"
BOT = "@muninn:localhost"
# What a killed service held is given up soon; the test waits for it.
_SETTINGS = "[huginn]\nanswer_tokens_default = 24\nturn_lease_seconds = 3\n"


class Home(Service):
    """A service with an account on the Matrix server, whose answers take a moment."""

    def log_in(self, synapse: Synapse, friend: str) -> None:
        words = ["matrix", "login", "--url", synapse.url, "--user", BOT, "--allow", friend]
        subprocess.run(
            [sys.executable, "-m", "actors.cli.main", *words],
            env=self.environment(),
            input="password\n",
            text=True,
            check=True,
            capture_output=True,
        )


@pytest.fixture
async def alice(synapse: Synapse) -> AsyncIterator[Person]:
    person = Person(synapse.url, synapse.register("wotan"))
    yield person
    await person.close()


@pytest.mark.req("EVT-5", "EVT-7", "EVT-11", "EVT-12", "SRV-5")
async def test_a_turn_knows_what_happened_and_has_one_reply(
    synapse: Synapse, alice: Person, tmp_path: Path
) -> None:
    synapse.register(BOT[1:].partition(":")[0], password="password")
    service = Home(tiny_home(tmp_path / "home"))
    (service.home / "huginn.toml").write_text(_SETTINGS)
    # The key is made at a start; the account is found at the next.
    with service:
        service.log_in(synapse, alice.id)
    with service:
        happened(service.url, service.key, "1122")
        room = await alice.room(BOT)
        await alice.until_joined(room, BOT)
        await alice.say(room, QUESTION)
        await alice.until_said(room, BOT, 1)
        await alice.say(room, "and?")
        await alice.until_said(room, BOT, 2)
        first, second = _turns(service)
        prompts = [_blocks(service, turn["context_id"]) for turn in (first, second)]
        assert [[TOLD in block["content"] for block in blocks] for blocks in prompts] == [
            [True, False],
            [True, False, False, False],
        ]
        assert prompts[1][:2] == prompts[0]
        receipt = service.receipt(second["response"])["blocks"]
        assert [block["reused"] == block["tokens"] for block in receipt[:2]] == [True, True]
        # Killed somewhere in its work, again and again: each message has the one reply.
        draw = random.Random(0)
        for number in range(ROUNDS):
            await alice.say(room, f"no. {number}")
            await asyncio.sleep(draw.uniform(0.0, 0.6))
            service.kill()
            service.start()
            await alice.until_said(room, BOT, 3 + number)
        await alice.say(room, "bye")
        assert len(await alice.until_said(room, BOT, 3 + ROUNDS)) == 3 + ROUNDS
        states = [turn["state"] for turn in _turns(service)]
        assert states.count("finished") == 3 + ROUNDS
        # Whatever was killed, what had been told was not told again.
        last = _blocks(service, _turns(service)[-1]["context_id"])
        assert sum(TOLD in block["content"] for block in last) == 1


def _turns(service: Service) -> list[dict[str, Any]]:
    (session,) = service.get("/huginn/v1/sessions").json()["data"]
    found: list[dict[str, Any]] = service.get(f"/huginn/v1/sessions/{session['id']}").json()[
        "turns"
    ]
    return found


def _blocks(service: Service, context: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/huginn/v1/contexts/{context}").json()["blocks"]
    return found
