"""An installation in one process for tests: authority, ropes and assembler, over stores in memory.

The rooms are the product's own and every message goes through a door. Nothing in it is random and
no time passes of its own: two installations that are made and asked alike give the same bytes,
unless `drawn` makes their keys and nonces differ. The mailbox keeps what was said.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actors.assembler.contracts import ProfileContracts
from actors.assembler.room import AssemblerRoom
from actors.authority.principals import NAMESPACE_RIGHTS, Principals
from actors.authority.room import AuthorityRoom
from actors.gateway.caller import Caller, Ports
from actors.gateway.keys import KeyHolder, KeyRow
from actors.room import Room, World
from actors.ropes.room import RopesRoom
from protocol.assembly import ModelContract
from protocol.capability import attenuate, issue
from protocol.caveats import ServiceCaveat
from protocol.envelope import Envelope, decode_envelope, open_reply, seal
from protocol.errors import Unavailable, WorkerFault
from protocol.grammars import GRAMMARS, grammar
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX, MESSAGE_BYTES_MAX
from protocol.messages.assembler import Assemble, Assembled
from protocol.messages.authority import Enroll
from protocol.messages.ropes import Commit, NewBlock
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Resource, ResourceKind, Right
from protocol.semantic import SemanticContract
from protocol.signing import Signer
from store.memory_objects import MemoryObjectStore
from store.memory_tables import MemoryTables
from tests.block_samples import Pair
from tests.fake_tokenizer import FakeTokenizer
from tests.worker_rooms import CountingEntropy, HandClock

R = TypeVar("R", bound=Record)

SECOND = 10**9
PROFILE = "raven"
ROOMS = ("authority", "ropes", "assembler")
SIGNERS = ("authority", "ropes", "assembler", "worker", "gateway")
EVERY_RIGHT = tuple(sorted(right.value for right in NAMESPACE_RIGHTS))
YEAR_NS = CAPABILITY_LIFETIME_NS_MAX


def profile(name: str = PROFILE, *, weights: bytes = b"w", discipline: str = "bytes/1") -> Any:
    """What a runtime profile brings, over bytes: both grammars, the instruct one its own."""
    tokenizer = FakeTokenizer(discipline=discipline)
    grammars = {each: grammar(each, tokenizer) for each in GRAMMARS}
    model = ModelContract(
        v=1,
        kind="model",
        name="raven",
        architecture="bytes",
        weights_digest=hashlib.sha256(weights).digest(),
        layers=0,
        window_tokens=0,
        instruct=True,
    )
    return ProfileContracts(
        name=name, model=model, grammar=grammars["gemma3-it"], grammars=grammars
    )


class Post:
    """Rooms by name. `down`: rooms whose process has died. `sent` and `replies`, in order of
    sending and of answering, is what was said in calls. `meanwhile` runs between an answer and its
    arrival."""

    def __init__(self) -> None:
        self.rooms: dict[str, Room] = {}
        self.down: set[str] = set()
        self.sent: list[Envelope] = []
        self.replies: list[bytes] = []
        self.meanwhile: Callable[[Envelope], Awaitable[None]] | None = None

    async def call(self, room: str, message: bytes) -> bytes:
        self.sent.append(decode_envelope(message))
        reply = await self._room(room).receive(message)
        self.replies.append(reply)
        if self.meanwhile is not None:
            await self.meanwhile(decode_envelope(message))
        return reply

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        return self._room(room).stream(message)

    def asked(self, room: str, op: str, kind: type[R]) -> list[R]:
        """Every request of `op` that was sent to `room`."""
        return [
            decode_record(kind, envelope.body, size_max=MESSAGE_BYTES_MAX)
            for envelope in self.sent
            if (envelope.room, envelope.op) == (room, op)
        ]

    @property
    def commits(self) -> list[Commit]:
        return self.asked("ropes", "commit", Commit)

    def forget(self) -> None:
        self.sent.clear()
        self.replies.clear()

    def _room(self, name: str) -> Room:
        if name in self.down:
            raise WorkerFault(f"the {name} room died")
        if name not in self.rooms:
            raise Unavailable(f"there is no {name} room now")
        return self.rooms[name]


@dataclass(frozen=True)
class Principal:
    """One who may ask: the row that a gateway keeps, and the key to sign with."""

    row: KeyRow
    signer: Signer
    ports: Ports

    @property
    def caller(self) -> Caller:
        """A new request of this principal."""
        return Caller(KeyHolder(self.row, self.signer), self.ports, "request")

    def chain(self, room: str, **changes: Any) -> tuple[bytes, ...]:
        """A handle for one room and one minute, narrowed by `changes`."""
        fields: dict[str, Any] = {
            "audience": self.signer.public,
            "nonce": self.ports.entropy.draw(16),
            "caveats": [ServiceCaveat(names=(room,))],
            "exp_ns": self.ports.clock.wall_ns() + 60 * SECOND,
        }
        return attenuate(self.row.chain, self.signer, **{**fields, **changes})

    def message(self, room: str, op: str, record: Record, **changes: Any) -> bytes:
        """A sealed message; `changes` are arguments of `seal`."""
        fields: dict[str, Any] = {
            "chain": self.chain(room),
            "signer": self.signer,
            "room": room,
            "op": op,
            "body": encode_record(record),
            "ts_ns": self.ports.clock.wall_ns(),
            "nonce": self.ports.entropy.draw(16),
            "request_id": "request",
        }
        return seal(**{**fields, **changes})


@dataclass
class Installation:
    """Rooms over one clock, one entropy and one mailbox. `restart` forgets what a room remembers
    and keeps what it stored. `reporting`: rooms tell a muninn room what they execute; else that is
    left to the test. `audited`: they tell the authority what they refuse."""

    profiles: Mapping[str, ProfileContracts] = field(default_factory=lambda: {PROFILE: profile()})
    semantics: Sequence[SemanticContract] = ()
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    drawn: int = 0
    reporting: bool = False
    audited: bool = False

    def __post_init__(self) -> None:
        self.clock = HandClock()
        self.entropy = CountingEntropy(self.drawn)
        self.post = Post()
        self.tables = MemoryTables()
        self.root = Signer(self.entropy.draw(32))
        self.signers = {name: Signer(self.entropy.draw(32)) for name in SIGNERS}
        self.room_to_key = {name: signer.public for name, signer in self.signers.items()}
        self.ports = Ports(self.clock, self.entropy, self.post, self.room_to_key)

    async def start(self) -> Installation:
        for name in ROOMS:
            await self.restart(name)
        return self

    async def restart(self, name: str) -> None:
        """A new room `name` over the same store and tables."""
        match name:
            case "authority":
                room: Room = AuthorityRoom(self.world(name), self.tables, self.root)
            case "ropes":
                room = RopesRoom(self.world(name), self.store)
            case _:
                room = AssemblerRoom(self.world(name), self.profiles, self.semantics)
        await self.add(room)

    async def add(self, room: Room) -> None:
        self.post.rooms[room.name] = room
        await room.start()

    def world(self, name: str) -> World:
        """What the room `name` is given."""
        chain = issue(
            self.root,
            audience=self.room_to_key[name],
            resource=Resource(kind=ResourceKind.SERVICE, name=name),
            rights=(Right.OPERATE,),
            nbf_ns=self.clock.wall_ns(),
            exp_ns=self.clock.wall_ns() + YEAR_NS,
            nonce=self.entropy.draw(16),
        )
        return World(
            clock=self.clock,
            entropy=self.entropy,
            mailbox=self.post,
            signer=self.signers[name],
            anchors=frozenset((self.root.public,)),
            room_to_key={
                room: key
                for room, key in self.room_to_key.items()
                if room != "muninn" or name == "authority" or self.reporting
            },
            service_chain=chain,
            audited=self.audited,
        )

    async def enroll(
        self,
        name: str,
        *,
        namespace: str | None = None,
        rights: Iterable[str] = EVERY_RIGHT,
        administers: bool = False,
        telemetry: list[str] | None = None,
        domain: str | None = None,
    ) -> Principal:
        """A principal, as a shell enrolls one before any room runs."""
        signer = Signer(hashlib.sha256(name.encode()).digest())
        ask = enrolment(
            name,
            signer,
            namespace=namespace,
            rights=rights,
            administers=administers,
            telemetry=telemetry,
            domain=domain or name,
        )
        principals = Principals(self.tables, self.root, self.clock, self.entropy)
        enrolled = await principals.enroll(ask)
        row = KeyRow.granted(ask, enrolled, self.clock.wall_ns() // SECOND)
        return Principal(row, signer, self.ports)


def enrolment(name: str, signer: Signer, **changes: Any) -> Enroll:
    """What asks for a principal with a namespace and a domain of its own name."""
    fields: dict[str, Any] = {
        "namespace": None,
        "rights": EVERY_RIGHT,
        "profiles": [PROFILE],
        "administers": False,
        "lifetime_ns": YEAR_NS,
        **changes,
    }
    return Enroll(
        name=name,
        public_key=signer.public,
        namespace=fields.pop("namespace") or name,
        domain=fields.pop("domain", name),
        rights=list(fields.pop("rights")),
        **fields,
    )


def new_blocks(pairs: Iterable[Pair]) -> list[NewBlock]:
    return [NewBlock(block=block, content=text.encode("utf-8")) for block, text in pairs]


def assemble(pairs: Iterable[Pair] | None, **changes: Any) -> Assemble:
    """A request that stores, in `alice`, with room for everything."""
    fields: dict[str, Any] = {
        "namespace": "alice",
        "profile": PROFILE,
        "policy": "refuse",
        "tokens_max": 1_000_000,
        "keep_turns": 1,
        "store": True,
        "blocks": None if pairs is None else new_blocks(pairs),
    }
    return Assemble(**{**fields, **changes})


async def assembled(principal: Principal, ask: Assemble) -> Assembled:
    return await principal.caller.ask("assembler", "assemble", ask, Assembled, delegate=("ropes",))


async def reply_to(principal: Principal, room: str, op: str, record: Record) -> bytes:
    """The bytes of the room's answer, whatever it is; with a delegation for the ropes room."""
    entry = principal.ports.mailbox
    delegations = {}
    if room == "assembler":
        ropes_chain = principal.chain("ropes", audience=principal.ports.room_to_key[room])
        delegations = {"ropes": ropes_chain}
    return await entry.call(room, principal.message(room, op, record, delegations=delegations))


def opened(reply: bytes, kind: type[R]) -> R:
    """The record in a reply; raises the error that it carries."""
    return decode_record(kind, open_reply(reply), size_max=MESSAGE_BYTES_MAX)
