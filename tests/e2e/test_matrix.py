"""Matrix over the real service: a turn there knows what happened, and a message has one reply and
an event is told once even where the service is killed at its work.

Each kill waits for a turn to be there: as soon as it is open, somewhere in its answer, or as soon
as the answer is kept and the reply is due. `HUGINN_CRASH_ROUNDS` kills half as often.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from actors.cli.client import Client
from tests.crash import totals
from tests.happenings import QUESTION, SLED, happened
from tests.installations import Service, roomy_profile, tiny_home
from tests.killed_children import ROOT
from tests.matrix.people import Person
from tests.matrix.synapse import Synapse, User

pytestmark = pytest.mark.slow

ROUNDS: Final = max(2, int(os.environ.get("HUGINN_CRASH_ROUNDS", "1")) // 2)
SEED: Final = int(os.environ.get("HUGINN_CRASH_SEED", "0"))
# More rounds than that are not played where no kill hit an open turn.
ROUNDS_MAX: Final = ROUNDS + 8
TOLD: Final = "1122 merged"
BOT: Final = "@muninn:localhost"
OPEN, MIDWAY, ANSWERED = "an open Matrix turn", "a Matrix answer", "a Matrix reply"
# An answer takes a while; what a killed service held is given up soon, and the test waits for it.
_SETTINGS: Final = "[huginn]\nanswer_tokens_default = 160\nturn_lease_seconds = 3\n"
_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 0.005


class Home(Service):
    """A service with an account on the Matrix server, for one friend."""

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

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(ROOT)}

    def turns(self, room: str) -> list[dict[str, Any]]:
        """The turns of the session of `room`, oldest first; none before there is one."""
        sessions = self.get("/huginn/v1/sessions").json()["data"]
        ids = [row["id"] for row in sessions if row["place"] == f"matrix:{room}"]
        found: list[dict[str, Any]] = []
        for id in ids:
            found = self.get(f"/huginn/v1/sessions/{id}").json()["turns"]
        return found

    def blocks(self, turn: dict[str, Any]) -> list[dict[str, Any]]:
        """What a finished turn asked about."""
        context = self.get(f"/huginn/v1/contexts/{turn['context_id']}").json()
        found: list[dict[str, Any]] = context["blocks"]
        return found


@pytest.fixture(scope="module")
def friend(synapse: Synapse) -> User:
    return synapse.register("wotan")


@pytest.fixture(scope="module")
def logged_in(
    synapse: Synapse, friend: User, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    """An installation with the account, which the tests start and stop."""
    synapse.register(BOT[1:].partition(":")[0], password="password")
    home = tiny_home(tmp_path_factory.mktemp("matrix") / "home")
    (home / "huginn.toml").write_text(_SETTINGS)
    made = Home(home, profile=str(roomy_profile(home, max(12288, 512 * ROUNDS_MAX))))
    # The key is made at a start; the account is found at the next.
    with made:
        made.log_in(synapse, friend.id)
    yield made
    made.stop()


@pytest.fixture
def service(logged_in: Home) -> Home:
    """It runs."""
    assert logged_in.process is not None
    return logged_in if logged_in.process.poll() is None else logged_in.start()


@pytest.fixture
async def alice(synapse: Synapse, friend: User) -> AsyncIterator[Person]:
    person = Person(synapse.url, friend)
    yield person
    await person.close()


async def _room(alice: Person) -> str:
    room = await alice.room(BOT)
    await alice.until_joined(room, BOT)
    return room


@pytest.mark.req("EVT-5", "EVT-7", "EVT-11", "EVT-12", "SRV-5")
async def test_a_turn_knows_what_happened_and_has_one_reply(service: Home, alice: Person) -> None:
    happened(service.url, service.key, "1122")
    room = await _room(alice)
    await alice.say(room, QUESTION)
    await alice.until_said(room, BOT, 1)
    await alice.say(room, "and?")
    await alice.until_said(room, BOT, 2)
    first, second = service.turns(room)
    prompts = [service.blocks(turn) for turn in (first, second)]
    assert [[TOLD in block["content"] for block in blocks] for blocks in prompts] == [
        [True, False],
        [True, False, False, False],
    ]
    assert prompts[1][:2] == prompts[0]
    receipt = service.receipt(second["response"])["blocks"]
    assert [block["reused"] == block["tokens"] for block in receipt[:2]] == [True, True]


class Hunt:
    """Kills the service at its work on the messages of `room`. `usual_s`: how long an answer took
    that nobody broke off."""

    def __init__(self, service: Home, room: str) -> None:
        self.service = service
        self.room = room
        self.usual_s = 0.0
        self.known = 0

    async def until(self, *states: str) -> None:
        """Waits until the newest turn is new here, and in one of `states`."""
        async with asyncio.timeout(_SECONDS_MAX):
            while True:
                turns = await asyncio.to_thread(self.service.turns, self.room)
                if len(turns) > self.known and turns[-1]["state"] in states:
                    return
                await asyncio.sleep(_LOOK_SECONDS)

    async def let_live(self) -> None:
        await self.until("open", "finished")
        began = time.monotonic()
        await self.until("finished")
        self.usual_s = time.monotonic() - began

    async def kill(self, step: str, draw: random.Random) -> bool:
        """Kills it at `step`, and starts it again. Whether a turn was open there."""
        await self.until(*(["finished"] if step == ANSWERED else ["open", "finished"]))
        if step == MIDWAY:
            await asyncio.sleep(draw.uniform(0, self.usual_s))
        await asyncio.to_thread(self.service.kill)
        await asyncio.to_thread(self.service.start)
        # Whoever is asked again waits for the lease of the dead: the turn is there to be seen.
        turns = await asyncio.to_thread(self.service.turns, self.room)
        return bool(turns[self.known]["state"] != "finished")

    def look(self) -> None:
        """All turns that there are are known."""
        self.known = len(self.service.turns(self.room))


@pytest.mark.req("EVT-5", "EVT-12")
async def test_a_message_has_one_reply_wherever_the_service_is_killed(
    service: Home, alice: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.stdout.write(f"HUGINN_CRASH_SEED={SEED}\n")
    draw = random.Random(SEED)
    source = Client(service.url, service.key)
    source.post("/huginn/v1/sources", {"name": SLED})
    room = await _room(alice)
    hunt = Hunt(service, room)
    said: list[str] = []

    async def say() -> None:
        subject = f"r{len(said)}"
        event = {"kind": "Close", "subject": subject, "body": {}}
        source.post(f"/huginn/v1/sources/{SLED}/events", event)
        said.append(subject)
        await alice.say(room, f"what of {subject}?")

    await say()
    await hunt.let_live()
    await alice.until_said(room, BOT, 1)
    steps = itertools.cycle((OPEN, ANSWERED, MIDWAY))
    hits: Counter[str] = Counter()
    for number in range(ROUNDS_MAX):
        if number >= ROUNDS and hits[OPEN] + hits[MIDWAY]:
            break
        step = next(steps)
        hunt.look()
        await say()
        was_open = await hunt.kill(step, draw)
        hits[(step if step == MIDWAY else OPEN) if was_open else ANSWERED] += 1
        await alice.until_said(room, BOT, len(said))
    await say()
    assert len(await alice.until_said(room, BOT, len(said))) == len(said)
    turns = service.turns(room)
    states = Counter(turn["state"] for turn in turns)
    # Each message has the one answer; each kill in an open turn left that turn, and nothing else.
    unfinished = hits[OPEN] + hits[MIDWAY]
    assert unfinished > 0, "no kill hit an open turn"
    assert states == {"finished": len(said), "unfinished": unfinished}
    told = Counter(
        line.split(": ", 1)[1].split()[0]
        for block in service.blocks(turns[-1])
        if block["type"] == "event reminder"
        for line in block["content"].splitlines()
        if ": r" in line
    )
    assert told == dict.fromkeys(said, 1)
    for step, count in hits.items():
        for _ in range(count):
            totals.killed(step)
    totals.TOTALS[totals.EVENTS] += len(said)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{hits.total()} kills in {dict(hits)}; {len(said)} replies to {len(said)}\n"
        )


async def test_control_a_message_that_is_answered_twice_is_found(
    service: Home, alice: Person
) -> None:
    room = await _room(alice)
    service.stop()
    service.module = "tests.matrix.faulty_service"
    try:
        service.start()
        await alice.say(room, QUESTION)
        await alice.until_said(room, BOT, 1)
        service.kill()
        service.start()
        await alice.until_said(room, BOT, 2)
    finally:
        service.stop()
        service.module = Service.module
