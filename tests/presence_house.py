"""A whole installation in one process, and two worlds of it: with the past of a domain and without.

Every room is the product's own, and the gateway is asked over HTTP. Objects lie in the product's
store, tables in memory. The worker's back end is the strict fake, and keeps pages in memory and on
disk. The clock stands still, so what differs between two worlds are drawn ids.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from actors.authority.principals import NAMESPACE_RIGHTS, Principals
from actors.events.retention import Retention
from actors.gateway.caller import DELEGATED_RIGHTS
from actors.gateway.front import FrontRoom
from actors.gateway.http.app import make_app, serve
from actors.gateway.keys import ApiKeys, KeyRow, mint_key
from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel
from actors.gateway.room import Gateway
from actors.gateway.transports.matrix_inbox import Inbox
from actors.muninn.room import MuninnRoom
from actors.worker.drivers import LoopDriver
from actors.worker.limits import WorkerLimits
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.errors import HuginnError
from protocol.ids import ProfileId
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages.muninn import Report, Results
from protocol.messages.worker import ModelInfo
from protocol.publication import PUBLIC
from protocol.record import Record, decode_record
from protocol.signing import Signer, principal_seed
from store.memory_tables import MemoryTables
from store.pages.memory import MemoryPageTier
from tests.events_rooms import events_room
from tests.fake_backend import FakeBackend
from tests.fake_tokenizer import FakeTokenizer
from tests.page_samples import TestClock, disk
from tests.presence_seen import Seen
from tests.rooms import PROFILE, SECOND, YEAR_NS, Installation, Principal, enrolment, profile
from tests.stores import sqlite_store
from tests.worker_rooms import inline, until

MODEL = "raven"
PROFILE_ID = ProfileId.of(b"raven")
CONTEXT_TOKENS = 1024
CHUNK = 16
INFO = ModelInfo(
    name=MODEL,
    profile=PROFILE_ID,
    context_tokens=CONTEXT_TOKENS,
    instruct=True,
    grammar="gemma3-it",
)
# What both domains talk about: whoever asks the same meets what the other left.
TEXTS = (
    "You are a raven. Answer in one line, and never say what you have not seen yourself.",
    "what did you see today, and where was it? tell me of the long way there and back",
    "and what else did you hear of the two who sit at the well below the tree",
    "no",
)
ANSWER_TOKENS = 5
# All that a principal may have where it works.
ALL_RIGHTS = sorted(right.value for right in NAMESPACE_RIGHTS)
# Answers that one owner may have open, cancellations ahead of their answers, and requests.
OWNER_MAX = 3
DAY_NS = 86_400 * SECOND
_LATER_NS = 1_800_000_000 * SECOND + 40 * DAY_NS
# So many turns of the loop bring whatever a stream has to who reads it.
_TURNS = 100
_HIDDEN = frozenset(("Date", "Server"))
Request = tuple[str, str, Any]


@dataclass(frozen=True)
class Person:
    """A principal with a key."""

    key: str
    principal: Principal

    @property
    def name(self) -> str:
        return self.principal.row.principal


class House:
    """One world. `people` are alice, whose past it is about; bob, who may not see telemetry; boris,
    who sees that of his own domain; and wendy, who may write and answer where alice works, and read
    and observe nothing there; each in a domain of their own; and an operator. `goes_on`: alice
    lives here, and goes on while others are told what happens. `streams`: of the back end."""

    def __init__(self, root: Path, streams: int = 16) -> None:
        (root / "objects").mkdir()
        self.streams = streams
        self.rooms = Installation(
            reporting=True,
            profiles={PROFILE: profile(PROFILE)},
            store=sqlite_store(root / "objects"),  # type: ignore[arg-type]
        )
        self.goes_on = False
        for name in ("muninn", "events"):
            self.rooms.signers[name] = Signer(self.rooms.entropy.draw(32))
            self.rooms.room_to_key[name] = self.rooms.signers[name].public
        self.root = root
        self.people: dict[str, Person] = {}
        self._http: ClientSession | None = None

    async def start(self) -> None:
        await self.rooms.start()
        retention = Retention(events_max=1)
        self.events = events_room(self.rooms.world("events"), retention=retention)
        self.muninn = MuninnRoom(self.rooms.world("muninn"), MemoryTables())
        self.worker = self._worker()
        for room in (self.events, self.muninn, self.worker):
            await self.rooms.add(room)
        self.keys = MemoryTables().keyed("keys")
        self.gateway = Gateway(
            self.rooms.ports,
            self.keys,
            [ServedModel(MODEL, PROFILE, "worker", INFO, FakeTokenizer(), 1_700_000_000)],
            version="0.0-test",
            limits=Limits(requests_open_max=OWNER_MAX),
        )
        # Not started: the gateway is served below. It has its part in erasures.
        self.inbox = Inbox(MemoryTables())
        self.rooms.post.rooms["gateway"] = FrontRoom(
            self.rooms.world("gateway"), self.gateway, host="127.0.0.1", port=0, inbox=self.inbox
        )
        every = ALL_RIGHTS
        less = [right for right in every if right != "telemetry"]
        # Bob's telemetry is taken away altogether; boris has his own domain's, and the public one.
        await self.enroll("alice", every, telemetry=[PUBLIC])
        await self.enroll("bob", less, telemetry=None)
        await self.enroll("boris", every, telemetry=[PUBLIC])
        await self.enroll("wendy", ["generate", "write"], telemetry=None, namespace="alice")
        await self.enroll("operator", every, telemetry=[PUBLIC], administers=True)
        self.app = make_app(self.gateway)
        self._runner, port = await serve(self.app, "127.0.0.1", 0)
        self.runner_address = f"http://127.0.0.1:{port}"
        self._http = ClientSession(self.runner_address)

    def _worker(self) -> WorkerRoom:
        self.backend = FakeBackend(
            streams=self.streams,
            context_tokens=CONTEXT_TOKENS,
            chunk_tokens=CHUNK,
            window_tokens=64,
        )
        self.backend.tokenizer = FakeTokenizer()  # type: ignore[assignment]
        self.host = MemoryPageTier(TestClock(), 2**30)
        self.disk = disk(self.root / "pages")
        self.writer = PageWriter(self.disk, self.host)
        tables = MemoryTables()
        return WorkerRoom(
            self.rooms.world("worker"),
            self.backend,
            PROFILE_ID,
            INFO,
            tables.keyed("receipts"),
            profile_name=PROFILE,
            public_table=tables.keyed("public"),
            tiers=Tiers(self.host, self.disk, self.writer, gain_tokens_min=1, tail_tokens_min=1),
            limits=WorkerLimits(
                chunk_tokens=CHUNK,
                states_equal=True,
                drain_ns=SECOND,
                jobs_owner_max=OWNER_MAX,
                tombstones_max=OWNER_MAX,
            ),
            driver=LoopDriver(),
            blocking=inline,
        )

    async def enroll(
        self, name: str, rights: list[str], *, telemetry: list[str] | None, **more: Any
    ) -> None:
        """One more of the people."""
        key = mint_key(hashlib.sha256(name.encode()).digest()[:20])
        signer = Signer(principal_seed(key))
        ask = enrolment(name, signer, rights=rights, telemetry=telemetry, **more)
        assert ask.lifetime_ns == YEAR_NS
        rooms = self.rooms
        principals = Principals(rooms.tables, rooms.root, rooms.clock, rooms.entropy)
        row = KeyRow.granted(ask, await principals.enroll(ask), 1_700_000_000)
        ApiKeys(self.keys).add(key, row)
        # The gateway reads its table once.
        self.gateway.keys = ApiKeys(self.keys)
        self.people[name] = Person(key, Principal(row, signer, rooms.ports))

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.close()
            await self._runner.cleanup()
        await self.events.drain()
        await self.worker.drain()
        for name in ("authority", "ropes"):
            await self.rooms.post.rooms[name].drain()

    # -- asking ------------------------------------------------------------------------------

    async def http(self, who: str, request: Request, seen: Seen, **headers: str) -> str:
        """Ask over HTTP; the body of the answer."""
        assert self._http is not None
        method, path, body = request
        async with asyncio.timeout(60):
            async with self._http.request(
                method,
                path,
                data=None if body is None else json.dumps(body),
                headers={"Authorization": f"Bearer {self.people[who].key}", **headers},
            ) as answer:
                text = await answer.text()
                shown = sorted(
                    f"{name}: {value}"
                    for name, value in answer.headers.items()
                    if name not in _HIDDEN
                )
                said = "\n".join([str(answer.status), *shown, text])
        seen.add(f"{who} {method} {path} {json.dumps(body)}", said)
        return text

    async def message(
        self,
        who: str,
        room: str,
        op: str,
        record: Record,
        seen: Seen,
        *,
        administer: bool = False,
    ) -> bool:
        """Ask a room itself; whether it was answered with anything but an error."""
        operation = self.rooms.post.rooms[room]._table[op]
        caller = self.people[who].principal.caller
        said: list[str] = []
        answered = True
        try:
            async with asyncio.timeout(60):
                if operation.streams:
                    items = caller.stream(room, op, record, operation.reply)
                    if op == "follow":
                        said += await self._heard(items)
                    else:
                        said += [repr(item) async for item in items]
                else:
                    others = tuple(
                        other
                        for other in _DELEGATED.get(room, ())
                        if any(map(caller.has, DELEGATED_RIGHTS[other]))
                    )
                    reply = await caller.ask(
                        room, op, record, operation.reply, delegate=others, administer=administer
                    )
                    said.append(repr(reply))
        except HuginnError as error:
            answered = False
            said.append(f"{type(error).__name__} {error.message} {error.details}")
        seen.add(f"{who} {room} {op} {record!r}", "\n".join(said))
        return answered

    async def _heard(self, items: Any) -> list[str]:
        """What comes on a stream that has no end of its own, while alice goes on."""
        found: list[str] = []

        async def hear() -> None:
            async for item in items:
                found.append(repr(item))

        sources = self.events._sources
        readers = sources.subscribers
        hearing = asyncio.create_task(hear())
        try:
            await until(lambda: hearing.done() or sources.subscribers > readers)
            if self.goes_on:
                news = ("POST", "/huginn/v1/sources/sled/events", merged("news"))
                await self.http("alice", news, Seen())
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            # The times of events never repeat: what comes next is at another time than the news.
            self.rooms.clock.now_ns += SECOND
        finally:
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing
            await items.aclose()
        return found

    async def told_again(self) -> None:
        """The worker tells the memo once more what it executed first and last, in one batch."""
        entries = [
            entry
            for sent in self.rooms.post.sent
            if (sent.room, sent.op, sent.request_id) == ("muninn", "report", "worker")
            for entry in decode_record(Report, sent.body, size_max=MESSAGE_BYTES_MAX).entries
        ]
        some = [*entries[:8], *entries[-8:]]
        await self.worker.ask_as_self("muninn", "report", Report(entries=some), Results)

    def later(self, time_ns: int = _LATER_NS) -> None:
        """It is that time, in whatever world."""
        self.rooms.clock.now_ns = time_ns

    async def quiet(self) -> None:
        """Wait until nothing goes on behind anybody's answer any more."""
        queues = [self.worker._testimony._queue, self.rooms.post.rooms["assembler"]._evidence]  # type: ignore[attr-defined]

        def is_quiet() -> bool:
            for queue in queues:
                queue._full.set()
            return not (
                self.gateway._later
                or self.worker._driver._scheduled  # type: ignore[attr-defined]
                or self.worker._engine.running
                or self.worker._engine.waiting
                or any(queue._sender is not None and not queue._sender.done() for queue in queues)
            )

        # Twice: what ends may set something else going.
        for _ in range(2):
            await until(is_quiet, pause_s=0.001)
            await self.events.settled()
        self.writer.flush()


# Whom a room asks in its caller's name, as far as the caller may have it.
_DELEGATED = {"assembler": ("ropes",), "events": ("ropes",), "muninn": ("ropes", "worker")}


@asynccontextmanager
async def house(root: Path, streams: int = 16) -> AsyncIterator[House]:
    made = House(root, streams)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation of these texts: a system prompt, then questions and answers."""
    roles = itertools.chain(["system"], itertools.cycle(["user", "assistant"]))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {
        "model": MODEL,
        "messages": messages,
        "temperature": 0,
        "seed": 7,
        "max_tokens": ANSWER_TOKENS,
        **more,
    }


def responded(text: str, store: bool = True) -> dict[str, Any]:
    """A response to one text."""
    fields: dict[str, Any] = {"temperature": 0, "max_output_tokens": ANSWER_TOKENS, "store": store}
    return {"model": MODEL, "input": text, "instructions": TEXTS[0], **fields}


def merged(subject: str) -> dict[str, Any]:
    """A story that was merged."""
    body = {"merge_commit": "4b825dc6"}
    fields = {"kind": "MergeSucceeded", "subject": subject, "body": body}
    return {**fields, "from": "qa", "to": "merged"}
