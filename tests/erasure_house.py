"""A whole installation over real files, laid out as a data directory: for tests of erasure.

Every room is the product's own; the worker runs on the fake back end with pages on disk. `alice`
and `bob` have domains of their own. What is put in carries a mark (`MARK`), so that whoever reads
the files as bytes sees whether any of it is left.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from actors.assembler.room import AssemblerRoom
from actors.authority.room import AuthorityRoom
from actors.cli.erased import check_erased
from actors.events.room import EventsRoom
from actors.gateway.front import FrontRoom
from actors.gateway.keys import ApiKeys
from actors.gateway.room import Gateway
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from actors.muninn.evidence import domain_stem
from actors.muninn.room import MuninnRoom
from actors.room import Room
from actors.ropes.room import RopesRoom
from actors.runtime.source_keys import StoredSourceKeys
from actors.worker.drivers import LoopDriver
from actors.worker.ledgers import LedgerPorts
from actors.worker.limits import WorkerLimits
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol import cbor
from protocol.envelope import open_reply
from protocol.errors import HuginnError
from protocol.ids import InvocationId, ObjectId, TextId
from protocol.messages import Operation, events, muninn
from protocol.messages.erasure import Erase, ErasureRow, RequestErasure
from protocol.messages.worker import Item, ModelInfo
from protocol.record import decode_record
from protocol.signing import Signer
from store.blobs import BlobFiles
from store.fsck import FsckReport
from store.keys import KeyStore
from store.pages.disk import PageStore
from store.pages.header import domain_digest
from store.pages.memory import MemoryPageTier
from store.pages.seal import DOMAIN_KEY_BYTES
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.block_samples import Pair
from tests.events_rooms import user
from tests.fake_backend import FakeBackend
from tests.fake_tokenizer import FakeTokenizer
from tests.rooms import PROFILE, Installation, Principal, assemble, assembled
from tests.worker_rooms import CHUNK, Talk, asked, inline, text_ids, until
from tests.worker_rooms import PROFILE as PROFILE_ID

ROOMS = ("authority", "ropes", "muninn", "events", "assembler", "worker", "gateway")
MARK = "nobody-shall-find"
ALICES = f"{MARK} alice"
BOBS = f"{MARK} bob"


class Unhearing(Room):
    """In place of a room: it answers that it erased, and does nothing."""

    operations: ClassVar[dict[str, Operation]] = {}


class Deaf(SqliteTables):
    """Tables whose file is never written anew."""

    def scrub(self) -> None:
        """Nothing."""


class ErasureHouse:
    """Over `home`. `start` and `stop` as often as one likes: what is stored stays."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.rooms = Installation(reporting=True)
        for name in ("muninn", "events"):
            self.rooms.signers[name] = Signer(self.rooms.entropy.draw(32))
            self.rooms.room_to_key[name] = self.rooms.signers[name].public
        self.tables = SqliteTables
        # What makes the files of large bodies, and the VFS on which a room's file lies (None: the
        # system's): a test that fails its disks puts others in their place.
        self.blobs: Callable[[Path], BlobFiles] = BlobFiles
        self.vfs: Callable[[str], str | None] = lambda room: None
        self.databases: list[Database] = []
        for name in ("rooms", "keys", "pages", "blobs"):
            (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def post(self) -> Any:
        return self.rooms.post

    async def start(self) -> ErasureHouse:
        """Every room, over what is stored."""
        # Whatever was said to rooms before counts as replayed.
        self.rooms.clock.now_ns += 10**9
        self.post.rooms.clear()
        for name in ROOMS:
            room = self.room(name)
            self.post.rooms[name] = room
            if name != "gateway":
                await room.start()  # the gateway would listen
        return self

    async def stop(self) -> None:
        """Every room ends as in a good stop."""
        for name in reversed(ROOMS):
            await self.post.rooms.pop(name).drain()
        self.databases.clear()

    async def die(self) -> None:
        """Every room ends as the disks let it that have failed: nothing more is stored."""
        for name in reversed(ROOMS):
            with suppress(HuginnError):
                await self.post.rooms.pop(name).drain()
        for database in self.databases:
            database.close()
        self.databases.clear()

    async def at(self, home: Path) -> ErasureHouse:
        """Start over a copy of what is stored, in the new folder `home`; after `stop`."""
        shutil.copytree(self.home, home)
        self.home = home
        return await self.start()

    def room(self, name: str) -> Room:
        world = self.rooms.world(name)
        match name:
            case "authority":
                self.rooms.tables = self._tables(name)  # type: ignore[assignment]
                return AuthorityRoom(world, self._known, self.rooms.root)
            case "ropes":
                self.store = SqliteObjectStore(
                    self._database(name), self.blobs(self.home / "blobs")
                )
                return RopesRoom(world, self.store)
            case "muninn":
                self.memo = self._tables(name)
                return MuninnRoom(world, self.memo)
            case "events":
                database = self._database(name)
                return EventsRoom(
                    world,
                    SqliteEventLogs(database),
                    self.tables(database),
                    tokenizer=FakeTokenizer(),
                    keys=StoredSourceKeys(self.home / "keys", self.rooms.entropy),
                )
            case "assembler":
                return AssemblerRoom(world, self.rooms.profiles)
            case "worker":
                return self._worker()
            case _:
                self.front = self._tables(name)
                self.keys = ApiKeys(self.front.keyed("keys"))
                gateway = Gateway(self.rooms.ports, self.front.keyed("keys"), [], version="0")
                self.inbox = Inbox(self.front)
                return FrontRoom(
                    world,
                    gateway,
                    host="127.0.0.1",
                    port=0,
                    inbox=self.inbox,
                    tables=self.front,
                )

    def _database(self, name: str) -> Database:
        path = self.home / "rooms" / f"{name}.sqlite"
        self.databases.append(Database(path, vfs=self.vfs(name)))
        return self.databases[-1]

    def _tables(self, name: str) -> SqliteTables:
        self._known = self.tables(self._database(name))
        return self._known

    def _worker(self) -> WorkerRoom:
        tables, clock = self._tables("worker"), self.rooms.clock
        keys = KeyStore(self.home / "keys", entropy=self.rooms.entropy.draw)

        def name(domain: str) -> str:
            return f"pages-{domain_digest(domain).hex()}"

        def key_for(domain: str) -> bytes:
            return keys.secret(name(domain), DOMAIN_KEY_BYTES)

        host = MemoryPageTier(clock, 2**30)
        disk = PageStore(self.home / "pages", clock, key_for, 2**30)
        self.writer = PageWriter(disk, host)
        tiers = Tiers(
            host,
            disk,
            self.writer,
            gain_tokens_min=1,
            destroy_key=lambda domain: keys.destroy(f"{name(domain)}.secret"),
        )
        backend = FakeBackend(streams=4, chunk_tokens=CHUNK, window_tokens=24, context_tokens=1024)
        return WorkerRoom(
            self.rooms.world("worker"),
            backend,
            PROFILE_ID,
            ModelInfo(
                name="fake",
                profile=PROFILE_ID,
                context_tokens=backend.context_tokens,
                instruct=True,
                grammar="fake",
            ),
            tables.keyed("receipts"),
            profile_name=PROFILE,
            tiers=tiers,
            tables=tables,
            driver=LoopDriver(),
            blocking=inline,
            limits=WorkerLimits(chunk_tokens=CHUNK),
            ledgers=LedgerPorts(tables.keyed("charges")),
        )

    # -- what is in it -----------------------------------------------------------------------

    async def people(self) -> None:
        """The operator, alice and bob, with keys that the gateway knows."""
        self.operator = await self.rooms.enroll("operator", administers=True)
        self.alice = await self.rooms.enroll("alice")
        self.bob = await self.rooms.enroll("bob")
        for each in (self.operator, self.alice, self.bob):
            self.keys.add(key_of(each.row.principal), each.row)

    async def live(self, who: Principal) -> None:
        """One of everything: a context, an answer with pages and a receipt, a session with turns,
        a source with events, a kind, a letter to answer, an account of looks."""
        name = who.row.principal
        mark = f"{MARK} {name}"
        self.inbox.take([letter_of(who, mark)], f"after-{name}")
        await assembled(who, assemble(pairs(mark), namespace=name))
        await self.answer(who, mark)
        look = muninn.Look(invocations=[InvocationId.of(mark.encode())])
        await who.caller.ask("muninn", "look", look, muninn.Looked)
        await self._ask(who, "add_source", events.AddSource(namespace=name, name="builds"))
        event = events.NewEvent(
            kind="MergeSucceeded", subject=mark, body=cbor.encode({"merge_commit": mark})
        )
        append = events.AppendEvents(namespace=name, source="builds", events=[event], key=mark)
        await self._ask(who, "append", append)
        schema = b'{"type": "object", "title": "' + mark.encode() + b'"}'
        kind = events.RegisterKind(namespace=name, kind=f"{name}.Told", schema=schema)
        await self._ask(who, "register_kind", kind)
        open_ = events.OpenSession(namespace=name, persona=mark, since="beginning", place=mark)
        session = (await self._ask(who, "open_session", open_)).id
        begin = events.BeginTurn(
            namespace=name,
            session=session,
            response=f"resp-{mark}",
            wait_ns_max=0,
            input=[user(mark), user(f"{mark}: what happened?")],
        )
        await self._ask(who, "begin_turn", begin)
        stem = f"evidence-{domain_stem(name)}"
        await until(lambda: any(log.startswith(stem) for log in self.memo.logs()), pause_s=0.01)

    async def answer(self, who: Principal, text: str) -> None:
        """An answer of the worker, its pages written to disk and its receipt kept."""
        talk = Talk().add("user", text_ids(text) * 4)
        message = who.message(
            "worker", "generate", asked(talk.segments, response=f"resp-{text[-5:]}")
        )
        items = [
            decode_record(Item, open_reply(reply))
            async for reply in self.post.stream("worker", message)
        ]
        assert items[-1].receipt is not None
        worker = self.post.rooms["worker"]
        async with asyncio.timeout(60):
            while worker._engine.exports.step():
                await asyncio.sleep(0)
        self.writer.flush()
        await worker._receipts.flush()
        await worker._ledgers.charges.flush()

    async def _ask(self, who: Principal, op: str, ask: Any) -> Any:
        reply = events.OPERATIONS[op].reply
        return await who.caller.ask("events", op, ask, reply, delegate=("ropes",))

    async def erase(
        self, target: Any, name: str, *, by: Principal | None = None, namespace: str | None = None
    ) -> ErasureRow:
        """By the operator, as who administers, unless somebody else is named."""
        ask = RequestErasure(target=target, name=name, namespace=namespace)
        caller = (by or self.operator).caller
        return await caller.ask(
            "authority", "request_erasure", ask, ErasureRow, administer=by is None
        )

    def marked(self, mark: str) -> list[str]:
        """The files, by their paths below the home, in which these bytes are."""
        found = [
            path.relative_to(self.home).as_posix()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and mark.encode() in path.read_bytes()
        ]
        return found

    @property
    def orders(self) -> list[tuple[str, Erase]]:
        """Every order that a room was given."""
        return [
            (envelope.room, decode_record(Erase, envelope.body))
            for envelope in self.post.sent
            if envelope.op == "erase"
        ]


async def opened(home: Path, **options: Any) -> ErasureHouse:
    """A house in which alice and bob have lived; `options` are attributes of it."""
    house = ErasureHouse(home)
    for name, value in options.items():
        setattr(house, name, value)
    await house.start()
    await house.people()
    await house.live(house.alice)
    await house.live(house.bob)
    return house


def found(home: Path, what: str, *, repair: bool = False) -> list[str]:
    """What `fsck --erased` finds in `home`, which is at rest."""
    report = FsckReport()
    check_erased(home, what, report, repair=repair)
    return [f"{each.kind}: {each.where}: {each.what}" for each in report.problems]


def key_of(principal: str) -> str:
    """The API key that the gateway knows of a principal."""
    return f"hg-{principal}-and-enough-characters"


def letter_of(who: Principal, text: str) -> Letter:
    """A message from a Matrix room that `who` is to answer."""
    return Letter(
        event=f"$to-{who.row.principal}",
        room="!room:host",
        sender="@somebody:host",
        body=text,
        principal=who.row.public,
        namespace=who.row.namespace,
    )


def pairs(text: str) -> list[Pair]:
    block = user(text)
    return [(block.block, text)]


def texts(prefix: str, count: int, *, size: int = 40) -> list[tuple[ObjectId, bytes]]:
    """`count` objects whose bodies begin with `prefix`."""
    bodies = [f"{prefix} {number} ".encode().ljust(size, b".") for number in range(count)]
    return [(TextId.of(body), body) for body in bodies]


def in_batches(
    store: SqliteObjectStore, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
) -> None:
    for start in range(0, len(objects), 500):
        store.put_many(namespace, objects[start : start + 500])
