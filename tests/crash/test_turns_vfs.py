"""I/O faults at every operation of whole turns: begun, renewed, given up and answered by an events
room and a ropes room whose files lie on one disk that fails.

Two rooms, two files, one power cut: an answer is in the ropes room before the turn names it. What
is found on a sound disk afterwards has to hold all that was acknowledged (events, turns with their
reminders and marks, answers with their blocks), no event twice in the lineage; and the same work
said again ends in the ids of a run in which nothing failed. The same sweep over files that lose
commits, one at a time, and over a book that moves marks apart from their turn, has to find it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from actors.events.book import Book
from protocol.errors import HuginnError, NotVisible, StoreFault
from protocol.ids import SequenceId
from protocol.messages import events as messages
from protocol.messages.ropes import ReadSequence, SequenceBlocks
from store.blobs import BlobFiles
from store.fsck import FsckReport, check_database, check_objects
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.crash.faulty_books import MarksApart, TellsApart
from tests.crash.totals import FAULTS, TOTALS
from tests.events_rooms import NAMESPACE, House, merged, reminders, user
from tests.lossy_disk import CUT, EIO, TORN, LossyDisk, WeakDatabase
from tests.rooms import Installation
from tests.session_play import EVENT
from tests.stores import FAST

SOURCE = "huskies"
# What the client says, turn by turn. The one without an answer is given up; the last is so long
# that it goes into the ropes room before its turn begins.
TURNS = (("what's going on?", "Well."), ("never mind", None), ("so much " * 40_000, "Indeed."))
EVENTS = 2
# `make crash` sets this to 1: every operation. The default looks at every eleventh.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "11"))
_lives = itertools.count(1)


class Kind(NamedTuple):
    """What the rooms are made of."""

    events: type[Database] = Database
    ropes: type[Database] = Database
    book: type[Book] = Book


HONEST = Kind()


class Rooms(Installation):
    """Only those that a turn needs here, over one object store."""

    async def start(self) -> Rooms:
        for name in ("authority", "ropes"):
            await self.restart(name)
        return self


@asynccontextmanager
async def living(folder: Path, vfs: str | None = None, kind: Kind = HONEST) -> AsyncIterator[House]:
    """One life of both rooms over the files in `folder`; StoreFault if those cannot be opened."""
    with contextlib.ExitStack() as files:
        objects = files.enter_context(kind.ropes(folder / "objects.db", vfs=vfs))
        events = files.enter_context(kind.events(folder / "events.db", vfs=vfs))
        life = next(_lives)
        house = House(
            tables=SqliteTables(events),
            logs=SqliteEventLogs(events),
            rooms=Rooms(
                store=SqliteObjectStore(objects, BlobFiles(folder / "blobs")),  # type: ignore[arg-type]
                # No two lives draw the same.
                drawn=life * 10_000,
            ),
        )
        await house.start()
        house.room._book.__class__ = kind.book
        try:
            yield house
        finally:
            await house.room.drain()


@dataclass
class Told:
    """What the client was told, by the number of the turn."""

    session: str
    appended: dict[int, messages.Appended] = field(default_factory=dict)
    begun: dict[int, messages.BegunTurn] = field(default_factory=dict)
    finished: dict[int, messages.FinishedTurn] = field(default_factory=dict)


async def happen(house: House, number: int) -> messages.Appended:
    """The events before turn `number`, under the key that is its own."""
    ask = messages.AppendEvents(
        namespace=NAMESPACE,
        source=SOURCE,
        events=[merged(f"e{number}x{each}") for each in range(EVENTS)],
        key=f"append-{number}",
    )
    return await house.ask("append", ask, messages.Appended)


async def begin(house: House, session: str, number: int, text: str) -> messages.BegunTurn:
    named = f"turn-{number}"
    return await house.begin(session, input=[user(text)], key=named, response=named)


async def talk(house: House, told: Told) -> list[str]:
    """Says everything, also what was said before, and notes what is told; which of it is another
    answer than before. Ends with the first refusal, which it raises."""
    listed = await house.turns(told.session)
    given_up = {row.response for row in listed.turns if row.state == "unfinished"}
    others: list[str] = []
    for number, (text, answer) in enumerate(TURNS):
        appended = await happen(house, number)
        if told.appended.setdefault(number, appended) != appended:
            others.append(f"the events before turn {number} got other ids")
        if f"turn-{number}" in given_up:
            continue
        begun = await begin(house, told.session, number, text)
        if told.begun.setdefault(number, begun).turn != begun.turn:
            others.append(f"turn {number} was begun twice")
        if answer is None:
            await house.abandon(begun)
            continue
        if begun.answer is None:
            await house.renew(begun)
        finished = await house.finish(begun, answer)
        if told.finished.setdefault(number, finished) != finished:
            others.append(f"the answer of turn {number} is another")
    return others


# -- what has to hold --------------------------------------------------------------------------


def damaged(folder: Path) -> list[str]:
    """What is wrong with the files, whatever they say."""
    report = FsckReport()
    with Database(folder / "events.db") as events:
        check_database(events, report)
        torn = [f"torn: {source}" for source in SqliteEventLogs(events).check()]
    with Database(folder / "objects.db") as objects:
        check_database(objects, report)
        check_objects(SqliteObjectStore(objects, BlobFiles(folder / "blobs")), report, repair=True)
    # A body that a commit did not come to is nobody's, and is removed.
    return torn if report.ok else [*torn, *map(str, report.problems)]


async def lost(house: House, told: Told) -> list[str]:
    """What was acknowledged and is not there, and what is there and is not right."""
    ask = messages.ReadEvents(namespace=NAMESPACE, source=SOURCE, after=0, limit=100)
    page = await house.ask("read", ask, messages.EventPage)
    known = {event.seq for appended in told.appended.values() for event in appended.events}
    problems = [f"event {seq} is lost" for seq in known if seq > page.head]
    listed = await house.turns(told.session)
    rows = {row.id: row for row in listed.turns}
    for number, begun in told.begun.items():
        row = rows.get(begun.turn)
        if row is None:
            problems.append(f"turn {number} is lost")
        elif row.injected != begun.injected or set(row.reminders) - set(reminders(begun.blocks)):
            problems.append(f"turn {number} told something else")
    for number, finished in told.finished.items():
        row = rows.get(told.begun[number].turn)
        if row is None or row.sequence != finished.sequence:
            problems.append(f"the answer of turn {number} is lost")
    marks = sum(mark.seq for mark in listed.session.marks)
    subjects = [name for row in listed.turns for name in EVENT.findall("".join(row.reminders))]
    if len(subjects) != marks or len(set(subjects)) != marks:
        problems.append(f"the marks say {marks}, told was {subjects}")
    blocks = {each.sequence: each.blocks for each in told.finished.values()}
    for kept in (row.sequence for row in listed.turns if row.sequence is not None):
        try:
            reading = ReadSequence(sequence=kept, start=0)
            caller = house.principal.caller
            found = await caller.ask("ropes", "read", reading, SequenceBlocks)
        except NotVisible:
            problems.append("a sequence that a turn names is lost")
        else:
            if found.blocks != blocks.get(kept, found.blocks):
                problems.append("an answer's blocks are others")
    return problems


async def untold(house: House, told: Told) -> list[str]:
    """What is wrong with what a last turn knows: every event, once."""
    last = await house.begin(told.session, input=[user("and now?")])
    subjects = Counter(EVENT.findall("\n".join(reminders(last.blocks))))
    wanted = Counter(f"e{turn}x{each}" for turn in range(len(TURNS)) for each in range(EVENTS))
    problems = ["in the end an event was not told"] if wanted - subjects else []
    return [*problems, "in the end an event was told twice"] if subjects - wanted else problems


# -- the sweep -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """What came of one life that failed, and the one after it."""

    operations: int
    problems: list[str]
    answers: list[SequenceId]


@dataclass
class Sweep:
    """Files in which a session has begun, to be copied, and lives over them below `folder`."""

    folder: Path
    kind: Kind
    mode: str
    session: str = ""

    async def prepare(self) -> Sweep:
        async with living(self.folder / "ground") as house:
            await house.source(SOURCE)
            self.session = (await house.open()).id
        return self

    async def run(self, fail_at: int) -> Run:
        folder = self.folder / f"{self.mode}-{fail_at}"
        shutil.copytree(self.folder / "ground", folder)
        told = Told(self.session)
        disk = LossyDisk(f"lossy-turns-{next(_lives)}", fail_at=fail_at, mode=self.mode)
        problems: list[str] = []
        # After a refusal it is unknown what is there: all of it is said once more.
        try:
            async with living(folder, disk.name, self.kind) as house:
                for _ in range(2):
                    with contextlib.suppress(HuginnError):
                        problems += await talk(house, told)
                        break
        except StoreFault:
            assert fail_at, "refused without a fault"
        finally:
            disk.unregister()
        disk.power_off()
        problems += damaged(folder)
        try:
            async with living(folder) as house:
                # Soon enough for every lease that was given.
                house.passes(1)
                problems += await lost(house, told)
                problems += await talk(house, told)
                problems += await untold(house, told)
        except HuginnError as error:
            problems.append(error.message)
        shutil.rmtree(folder)
        return Run(disk.operations, problems, [each.sequence for each in told.finished.values()])

    async def found(self, stride: int, *, until: Sequence[str] = ()) -> dict[int, list[str]]:
        """For every `stride`-th operation: what was wrong after it failed. With `until`, no further
        than until all of that was found."""
        clean = await self.run(0)
        assert clean.problems == []
        assert len(clean.answers) == len([answer for _, answer in TURNS if answer is not None])
        found = {}
        for point in range(1, clean.operations + 1, stride):
            run = await self.run(point)
            if run.operations < point:
                # It did not happen: the clean run was so slow that an idle file was tidied up.
                continue
            found[point] = run.problems
            if run.answers != clean.answers:
                found[point].append("the same work said again ended in other ids")
            if until and set(until) <= set(itertools.chain.from_iterable(found.values())):
                return found
        assert len(found) > 5
        return found


@pytest.fixture
def folder() -> Iterator[Path]:
    # The lossy disk keeps its own account of what is durable, so the real one need not.
    with tempfile.TemporaryDirectory(dir=FAST) as found:
        yield Path(found)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rooms whose disk fails say so at length."""
    caplog.set_level("CRITICAL")


@pytest.mark.req("EVT-2", "EVT-5")
@pytest.mark.parametrize("mode", [CUT, TORN, EIO])
async def test_no_fault_loses_or_repeats_anything_of_a_turn(folder: Path, mode: str) -> None:
    found = await (await Sweep(folder, HONEST, mode).prepare()).found(STRIDE)
    assert {point: problems for point, problems in found.items() if problems} == {}
    TOTALS[FAULTS] += len(found)


@pytest.mark.parametrize(
    ("kind", "cries"),
    [
        (
            Kind(events=WeakDatabase),
            ("event 1 is lost", "turn 0 is lost", "the answer of turn 0 is lost"),
        ),
        (Kind(ropes=WeakDatabase), ("a sequence that a turn names is lost",)),
        (
            Kind(book=MarksApart),
            ("the marks say 2, told was []", "in the end an event was not told"),
        ),
        (Kind(book=TellsApart), ("in the end an event was told twice",)),
    ],
    ids=["weak events", "weak ropes", "marks first", "marks last"],
)
async def test_control_what_is_careless_is_caught(
    folder: Path, kind: Kind, cries: tuple[str, ...]
) -> None:
    found = await (await Sweep(folder, kind, CUT).prepare()).found(2, until=cries)
    assert set(cries) <= set(itertools.chain.from_iterable(found.values()))
