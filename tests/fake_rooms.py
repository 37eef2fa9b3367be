"""A service in one process for gateway tests: real rooms, and a worker that plays a script.

The authority, ropes and assembler rooms are the product's own over stores in memory, and every
message goes through a room's door, so a chain, delegation or invocation that does not stand fails
here as it does in production. The worker is one that a test directs (`tests.scripted_worker`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.assembler.room import AssemblerRoom
from actors.authority.principals import NAMESPACE_RIGHTS, Principals
from actors.authority.room import AuthorityRoom
from actors.events.ports import RemoteFeed
from actors.events.sessions import SessionLimits
from actors.gateway.caller import Ports
from actors.gateway.http.app import make_app, serve
from actors.gateway.keys import ApiKeys, KeyRow, mint_key
from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel
from actors.gateway.room import Gateway
from actors.muninn.room import MuninnRoom
from actors.ports import Clock
from actors.room import Room, World
from actors.ropes.room import RopesRoom
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.capability import issue
from protocol.errors import Unavailable, WorkerFault
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.messages.authority import Enroll
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer, principal_seed
from store.memory_objects import MemoryObjectStore
from store.memory_tables import MemoryTables
from tests.events_rooms import events_room
from tests.fake_tokenizer import FakeTokenizer
from tests.rooms import profile
from tests.scripted_worker import INFO, MODEL, PROFILE, ScriptedWorker

ROOMS = ("authority", "ropes", "muninn", "events", "assembler", "worker", "gateway")


class Mailbox:
    """Rooms by name in this process. `down` are rooms whose process has died."""

    def __init__(self) -> None:
        self.rooms: dict[str, Room] = {}
        self.down: set[str] = set()
        self.calls: list[str] = []

    async def call(self, room: str, message: bytes) -> bytes:
        return await self._room(room).receive(message)

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        return self._room(room).stream(message)

    def _room(self, name: str) -> Room:
        self.calls.append(name)
        if name in self.down:
            raise WorkerFault(f"the {name} died; it is being started again")
        if name not in self.rooms:
            raise Unavailable(f"there is no {name} room now")
        return self.rooms[name]


@dataclass
class Service:
    """A running gateway over its rooms. `client_key` belongs to a principal without telemetry."""

    base_url: str
    operator_key: str
    client_key: str
    gateway: Gateway
    worker: ScriptedWorker
    mailbox: Mailbox
    world: Callable[[str], World]

    @property
    def host_port(self) -> tuple[str, int]:
        host, _, port = self.base_url.removeprefix("http://").partition(":")
        return host, int(port)


class AheadClock(SystemClock):
    """The system's clock, `ahead_ns` ahead of it."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead_ns

    def steady_ns(self) -> int:
        return super().steady_ns() + self.ahead_ns


@asynccontextmanager
async def running(
    limits: Limits | None = None,
    *,
    feed: RemoteFeed | None = None,
    lease_ns: int = 30 * 10**9,
    clock: Clock | None = None,
) -> AsyncIterator[Service]:
    """A service on a port of its own. `feed` reads the sources of others; a turn is held for
    `lease_ns` without a renewal; `clock` is everybody's, else the system's."""
    clock, entropy, mailbox = clock or SystemClock(), SystemEntropy(), Mailbox()
    root = Signer(entropy.draw(32))
    signers = {name: Signer(entropy.draw(32)) for name in ROOMS}
    room_to_key = {name: signer.public for name, signer in signers.items()}
    now_ns = clock.wall_ns()

    def world(name: str) -> World:
        chain = issue(
            root,
            audience=room_to_key[name],
            resource=Resource(kind=ResourceKind.SERVICE, name=name),
            rights=(Right.OPERATE,),
            nbf_ns=now_ns,
            exp_ns=now_ns + CAPABILITY_LIFETIME_NS_MAX,
            nonce=entropy.draw(16),
        )
        return World(
            clock=clock,
            entropy=entropy,
            mailbox=mailbox,
            signer=signers[name],
            anchors=frozenset({root.public}),
            room_to_key=room_to_key,
            service_chain=chain,
        )

    tables = MemoryTables()
    worker = ScriptedWorker(world("worker"))
    events = events_room(world("events"), feed=feed, limits=SessionLimits(lease_ns=lease_ns))
    rooms: list[Room] = [
        AuthorityRoom(world("authority"), tables, root),
        RopesRoom(world("ropes"), MemoryObjectStore()),
        MuninnRoom(world("muninn"), MemoryTables()),
        AssemblerRoom(world("assembler"), {PROFILE: profile(PROFILE)}),
        events,
        worker,
    ]
    for room in rooms:
        mailbox.rooms[room.name] = room
    for room in rooms:
        await room.start()
    key_table = MemoryTables().keyed("keys")
    principals = Principals(tables, root, clock, entropy)
    every = sorted(right.value for right in NAMESPACE_RIGHTS)
    less = [right for right in every if right != "telemetry"]
    operator_key = await enroll(principals, key_table, "operator", every, administers=True)
    client_key = await enroll(principals, key_table, "client", less, administers=False)
    gateway = Gateway(
        Ports(clock, entropy, mailbox, room_to_key),
        key_table,
        [ServedModel(MODEL, PROFILE, "worker", INFO, FakeTokenizer(), 1_700_000_000)],
        version="0.0-test",
        limits=limits or Limits(worker_wait_ns=50_000_000),
        signer=signers["gateway"],
        anchors=frozenset({root.public}),
    )
    runner, port = await serve(make_app(gateway), "127.0.0.1", 0)
    try:
        yield Service(
            base_url=f"http://127.0.0.1:{port}",
            operator_key=operator_key,
            client_key=client_key,
            gateway=gateway,
            worker=worker,
            mailbox=mailbox,
            world=world,
        )
    finally:
        await runner.cleanup()
        await events.drain()


async def enroll(
    principals: Principals, key_table: object, name: str, rights: list[str], *, administers: bool
) -> str:
    """A principal with its own namespace and domain, and a key for it."""
    key = mint_key(SystemEntropy().draw(20))
    ask = Enroll(
        name=name,
        public_key=Signer(principal_seed(key)).public,
        namespace=name,
        domain=name,
        rights=rights,
        profiles=[PROFILE],
        administers=administers,
        lifetime_ns=CAPABILITY_LIFETIME_NS_MAX,
    )
    row = KeyRow.granted(ask, await principals.enroll(ask), 1_700_000_000)
    ApiKeys(key_table).add(key, row)  # type: ignore[arg-type]
    return key
