"""`kill -9` of the whole service while clients append events and take turns (I-ACK, I-ONCE).

Each round has two sources and two sessions of its own; one client keeps its history, one goes on
from responses. The service is killed while one of them waits for an append, the beginning of a
turn, or the end of an answer, or right after that end; then it is started again, and they go on.
Afterwards, nothing that was acknowledged is lost, and in every prompt of a lineage each event that
it has seen stands once. The control is a service that breaks each of these promises.

`HUGINN_CRASH_ROUNDS` times three kills; `HUGINN_CRASH_SEED` begins another draw.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from actors.events.reminder import HEADING
from protocol.events import open_entry
from tests.crash.service_clients import (
    BEGIN,
    PHASES,
    Client,
    Continuer,
    Emitter,
    Moments,
    Resender,
    Talker,
    Told,
)
from tests.crash.totals import EVENTS, KILLS, STEP_TO_HITS, TOTALS
from tests.huginn import answered
from tests.installations import Service, roomy_profile, tiny_home
from tests.killed_children import ROOT, ROUNDS

SEED: Final = int(os.environ.get("HUGINN_CRASH_SEED", "1"))
KILLS_EACH: Final = 3
LINE: Final = re.compile(r"\S+ · \d\d-\d\d \d\d:\d\d · Close: (\S+) closed")
MORE: Final = re.compile(r"and (\d+) more events?")
T = TypeVar("T", bound=Talker)
CONFIG: Final = """\
[huginn]
answer_tokens_default = 24
turn_lease_seconds = 2
"""


def prepared(home: Path) -> tuple[Path, str]:
    """A data directory, and the tiny model's profile with room for what happens in a round."""
    tiny_home(home)
    (home / "huginn.toml").write_text(CONFIG, "utf-8")
    return home, str(roomy_profile(home))


class Cast:
    """The clients of one round, and what must hold of what they were told."""

    def __init__(self, service: Service, name: str, draw: random.Random) -> None:
        self.service = service
        self.draw = draw
        self.outcomes: Counter[str] = Counter()
        self._listed: set[str] = set()
        self.emitters = [
            Emitter(service, f"{kind}{name}", self._own_draw()) for kind in ("hut", "sled")
        ]
        self._keys = {each.name: self._made(each.name) for each in self.emitters}
        self.resender = self._talker(Resender, "chat")
        self.continuer = self._talker(Continuer, "responses")

    @property
    def talkers(self) -> list[Talker]:
        return [self.resender, self.continuer]

    @property
    def clients(self) -> Sequence[Client]:
        return [*self.emitters, *self.talkers]

    def acknowledged(self) -> frozenset[str]:
        """The subjects of all events that are known to be kept."""
        return frozenset(name for each in self.emitters for name in list(each.acknowledged))

    def _made(self, source: str) -> bytes:
        made = self.service.post("/huginn/v1/sources", {"name": source})
        return base64.b64decode(made.json()["public_key"])

    def _talker(self, kind: type[T], name: str) -> T:
        scope = [each.name for each in self.emitters]
        made = self.service.post("/huginn/v1/sessions", {"persona": "timmy", "scope": scope})
        session = str(made.json()["id"])
        return kind(self.service, name, self._own_draw(), session, self.acknowledged)

    def _own_draw(self) -> random.Random:
        return random.Random(self.draw.random())

    # -- what is there ---------------------------------------------------------------------------

    def log(self, source: str) -> list[str]:
        """The subjects of a source's events; asserts that its log is whole and signed."""
        subjects: list[str] = []
        previous = None
        while True:
            path = f"/huginn/v1/sources/{source}/events?after={len(subjects)}&limit=100"
            page = self.service.get(path).json()
            assert page["gap"] is None
            for row in page["data"]:
                entry = base64.b64decode(row["entry"])
                id, event = open_entry(entry, self._keys[source])
                assert (event.seq, event.prev) == (len(subjects) + 1, previous)
                previous = id
                subjects.append(event.subject)
            if not page["data"]:
                assert page["head"] == len(subjects)
                return subjects

    def turns(self, talker: Talker) -> list[dict[str, Any]]:
        shown = self.service.get(f"/huginn/v1/sessions/{talker.session}")
        assert shown.status_code == 200, shown.text
        rows: list[dict[str, Any]] = shown.json()["turns"]
        return rows

    def prompt(self, told: Told) -> tuple[Counter[str], int]:
        """How often each event stands in a prompt, and how many are only counted in it."""
        shown = self.service.get(f"/huginn/v1/contexts/{told.context}")
        assert shown.status_code == 200, shown.text
        blocks = shown.json()["blocks"]
        reminders = [each["content"] for each in blocks if each["type"] == "event reminder"]
        subjects: Counter[str] = Counter()
        more = 0
        for line in itertools.chain.from_iterable(map(str.splitlines, reminders)):
            if event := LINE.fullmatch(line):
                subjects[event[1]] += 1
            elif counted := MORE.fullmatch(line):
                more += int(counted[1])
            else:
                assert line == HEADING, line
        return subjects, more

    def count_outcomes(self) -> None:
        """What a death left behind that nobody was told of."""
        for emitter in self.emitters:
            if len(self.log(emitter.name)) > len(emitter.acknowledged):
                self.outcomes["appended, not told"] += 1
        for talker in self.talkers:
            known = {told.turn for told in talker.told}
            for row in self.turns(talker):
                if row["id"] not in known | self._listed:
                    kept = row["state"] == "finished"
                    self.outcomes["answered, not told" if kept else "begun, not answered"] += 1
                self._listed.add(row["id"])

    # -- what must hold --------------------------------------------------------------------------

    def check_logs(self) -> None:
        """Every acknowledged event is in its log, at its place; and nothing is there twice."""
        for emitter in self.emitters:
            subjects = self.log(emitter.name)
            lost = [
                subject
                for subject, (seq, _) in emitter.acknowledged.items()
                if subjects[seq - 1 : seq] != [subject]
            ]
            assert not lost, f"acknowledged and lost: {lost}"
            assert len(set(subjects)) == len(subjects), "an event was appended twice"

    def check_answers(self) -> None:
        """Every answer whose end was told is kept."""
        for talker in self.talkers:
            rows = {row["id"]: row for row in self.turns(talker)}
            for told in talker.told:
                row = rows[told.turn]
                assert row["state"] == "finished", "an answer was told and lost"
                assert row["context_id"] == told.context
                assert row["response"] == told.response
        for told in self.continuer.told:
            shown = self.service.get(f"/v1/responses/{told.response}").json()
            (part,) = shown["output"][0]["content"]
            assert part["text"] == told.text

    def check_prompts(self, talker: Talker) -> None:
        """In each prompt of a talker's, every event that was seen stands once; in the last, all."""
        logs = {each.name: self.log(each.name) for each in self.emitters}
        for told in talker.told:
            self._check_prompt(told, logs)
        subjects, more = self.prompt(talker.told[-1])
        assert subjects.total() + more == sum(map(len, logs.values())), "an event was not told"

    def _check_prompt(self, told: Told, logs: dict[str, list[str]]) -> None:
        subjects, more = self.prompt(told)
        doubled = [subject for subject, count in subjects.items() if count > 1]
        assert not doubled, f"told twice: {doubled}"
        if more:
            return
        for log in logs.values():
            seen = [subject for subject in log if subject in subjects]
            assert seen == log[: len(seen)], "an event was not told"
        late = told.known - set(subjects)
        assert not late, f"acknowledged before the question, and not told: {late}"


def killed(cast: Cast, phase: str, hits: Counter[str]) -> None:
    """One life of the service, which ends in `phase` of one of its clients; and the next begins."""
    moments = Moments()
    times = cast.draw.randint(2, 6)
    with ThreadPoolExecutor(len(cast.clients)) as pool:
        lives = [pool.submit(client.live, moments) for client in cast.clients]
        reached = moments.reached(phase, times)
        # Anywhere in it, and now and then just after it.
        time.sleep(cast.draw.uniform(0, 1.1) * moments.usual(phase))
        hits.update(moments.lasting())
        moments.killed.set()
        cast.service.kill()
    for life in lives:
        life.result()
    assert reached, f"nobody came to {phase}"
    cast.service.start()
    cast.count_outcomes()
    cast.check_logs()
    cast.check_answers()


def ended(cast: Cast) -> int:
    """The end of a round: everybody once more, and a branch. How many events were told again."""
    # First what was not answered before, then what is surely new.
    for client in [*cast.clients, *cast.clients]:
        client.act_once()
    cast.check_logs()
    cast.check_answers()
    for talker in cast.talkers:
        cast.check_prompts(talker)
    early = cast.continuer.told[0]
    seen, _ = cast.prompt(early)
    main, more = cast.prompt(cast.continuer.told[-1])
    cast.continuer.head = early.response
    cast.continuer.act_once()
    cast.check_prompts(cast.continuer)
    branch = cast.continuer.told[-1]
    (row,) = (row for row in cast.turns(cast.continuer) if row["id"] == branch.turn)
    (again,) = row["reminders"]
    named = {match[1] for match in LINE.finditer(again)}
    assert named
    assert named.isdisjoint(seen)
    assert more or named <= set(main)
    return len(named)


@pytest.mark.slow
@pytest.mark.req("EVT-2", "EVT-5")
def test_kills_lose_nothing_and_tell_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.stdout.write(f"HUGINN_CRASH_SEED={SEED}\n")
    draw = random.Random(SEED)
    home, profile = prepared(tmp_path / "home")
    phases = itertools.cycle(PHASES)
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    with Service(home, profile=profile) as service:
        for number in range(ROUNDS):
            cast = Cast(service, str(number), draw)
            for phase in itertools.islice(phases, KILLS_EACH):
                killed(cast, phase, hits)
            total["told again to a branch"] += ended(cast)
            total["acknowledged"] += len(cast.acknowledged())
            total["answers told"] += sum(len(talker.told) for talker in cast.talkers)
            total += cast.outcomes
    report = answered("fsck", home=home)
    assert report["ok"], report["problems"]
    assert report["events"] >= total["acknowledged"]
    with capsys.disabled():
        kills = f"{ROUNDS * KILLS_EACH} kills in {dict(hits)}"
        sys.stdout.write(f"\n{kills}: {dict(total)}; 0 lost, 0 told twice\n")
    assert ROUNDS < 3 or set(hits) == set(PHASES)
    TOTALS.update({KILLS: ROUNDS * KILLS_EACH, EVENTS: total["acknowledged"]})
    STEP_TO_HITS.update(hits)


class FaultyService(Service):
    module = "tests.crash.faulty_service"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_control_a_service_that_breaks_its_promises_is_found(tmp_path: Path) -> None:
    home, profile = prepared(tmp_path / "home")
    moments = Moments()
    with FaultyService(home, profile=profile) as faulty:
        cast = Cast(faulty, "", random.Random(SEED))
        hut = cast.emitters[0]
        for client in [*cast.clients, hut]:
            client.act_once()
        with ThreadPoolExecutor(1) as pool:
            life = pool.submit(cast.resender.live, moments)
            assert moments.reached(BEGIN, 1)
            deadline = time.monotonic() + 60
            while len(cast.turns(cast.resender)) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            hut.act_once()
            moments.killed.set()
            faulty.kill()
        life.result()
    with Service(home, profile=profile) as service:
        for client in cast.clients:
            client.service = service
        cast.service = service
        with pytest.raises(AssertionError, match="acknowledged and lost"):
            cast.check_logs()
        with pytest.raises(AssertionError, match="an answer was told and lost"):
            cast.check_answers()
        hut.act_once()
        for talker in cast.talkers:
            talker.act_once()
        with pytest.raises(AssertionError, match="an event was not told"):
            cast.check_prompts(cast.resender)
        with pytest.raises(AssertionError, match="told twice"):
            cast.check_prompts(cast.continuer)
