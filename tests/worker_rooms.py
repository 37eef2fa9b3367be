"""Worker rooms for tests: a clock that is turned by hand, conversations, and calls with a domain.

The conversations are those of a small grammar over the fake tokenizer: every turn's end belongs to
the next turn's head, and a model turn's head is the opener, as in the real grammars.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from actors.ports import Mailbox
from actors.room import Call, World
from actors.worker.drivers import Driver
from actors.worker.ledgers import LedgerPorts
from actors.worker.limits import WorkerLimits
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from protocol.capability import issue
from protocol.caveats import Scope
from protocol.envelope import decode_envelope, seal_error, seal_reply
from protocol.errors import HuginnError
from protocol.handle import Handle
from protocol.ids import BlockId, CapabilityId, ProfileId
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages.assembler import Segment
from protocol.messages.muninn import Execution, Report, Results
from protocol.messages.muninn import Result as Reported
from protocol.messages.ropes import Publication, Publications
from protocol.messages.worker import GREEDY, AskReceipt, Generate, Item, ModelInfo, Receipt, Settle
from protocol.publication import PUBLIC, state_prefix
from protocol.record import decode_record, encode_record
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer
from protocol.tokens import TokenIds, pack, unpack
from store.memory_tables import MemoryTables
from tests.fake_backend import FakeBackend

PROFILE = ProfileId.of(b"the profile of the tests")
# One of those that the handles of `tests.chains` reach.
PROFILE_NAME = "large"
ASSEMBLER, ROPES = Signer(b"a" * 32), Signer(b"o" * 32)
SECOND = 10**9
CHUNK = 16
RIGHTS = frozenset((Right.GENERATE, Right.ADVANCE, Right.TELEMETRY, Right.OPERATE))
BOS, SOT, EOT = 2, 3, 4
OPENER = (EOT, SOT, 109)
HEADS = {"user": (EOT, SOT, 117), "tool": (EOT, SOT, 116), "model": OPENER}


@dataclass
class HandClock:
    """Stands still until it is turned."""

    now_ns: int = 1_800_000_000 * SECOND

    def wall_ns(self) -> int:
        return self.now_ns

    def steady_ns(self) -> int:
        return self.now_ns


@dataclass
class CountingEntropy:
    """Draws that differ and are the same in every run."""

    drawn: int = 0

    def draw(self, size_bytes: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(str(self.drawn).encode()).digest(size_bytes)


@dataclass
class Talk:
    """A conversation as segments, built turn by turn."""

    segments: list[Segment] = field(default_factory=list)

    def add(self, role: str, content: TokenIds) -> Talk:
        """One more block; a new conversation."""
        head = (BOS, SOT, 117) if not self.segments else HEADS[role]
        added = segment(role, head, content, name=len(self.segments))
        return Talk([*self.segments, added])


def segment(role: str, head: TokenIds, content: TokenIds, *, name: int = 0) -> Segment:
    packed = pack(content)
    return Segment(
        block=BlockId.of(role.encode() + bytes((name % 256,)) + packed),
        role=role,
        type="other",
        head=pack(head),
        content=packed,
    )


def text_ids(text: str) -> TokenIds:
    return FakeBackend().tokenizer.encode(text)


def asked(segments: Iterable[Segment], *, response: str = "r1", **changes: Any) -> Generate:
    """A greedy request of eight tokens."""
    fields: dict[str, Any] = {
        "response": response,
        "segments": list(segments),
        "opener": pack(OPENER),
        "sampler": GREEDY,
        "tokens_max": 8,
        "time_ns_max": 3600 * SECOND,
        "stop_ids": [EOT],
        "stop_texts": [],
        "stops": [],
        "deliver_trim": False,
    }
    return Generate(**{**fields, **changes})


def call_from(
    domain: str | None = "alice",
    *,
    principal: bytes = b"p" * 32,
    rights: Iterable[Right] = RIGHTS,
    profiles: Iterable[str] = ("large",),
) -> Call:
    """A call as the door would have admitted it."""
    handle = Handle(
        lineage=(CapabilityId.of(b"cap"),),
        root=b"r" * 32,
        principal=principal,
        audience=b"a" * 32,
        resource=Resource(kind=ResourceKind.ALL),
        rights=frozenset(rights),
        scope=Scope(domain=domain, profiles=frozenset(profiles), telemetry=frozenset((PUBLIC,))),
        nbf_ns=0,
        exp_ns=2**62,
    )
    return Call(handle=handle, envelope=SimpleNamespace(request_id="q"))  # type: ignore[arg-type]


def world(clock: HandClock | None = None, mailbox: Mailbox | None = None) -> World:
    """With a `mailbox` there is a muninn room behind it, and nobody else is asked."""
    signer = Signer(b"w" * 32)
    muninn = {} if mailbox is None else {"muninn": b"m" * 32}
    return World(
        clock=clock or HandClock(),
        entropy=CountingEntropy(),
        mailbox=mailbox,  # type: ignore[arg-type]  # the worker asks no other room
        signer=signer,
        anchors=frozenset((Signer(b"\x01" * 32).public,)),
        room_to_key={
            "worker": signer.public,
            "authority": signer.public,
            "assembler": ASSEMBLER.public,
            "ropes": ROPES.public,
            **muninn,
        },
        service_chain=() if mailbox is None else _own_chain(signer),
    )


def _own_chain(signer: Signer) -> tuple[bytes, ...]:
    return issue(
        Signer(b"\x01" * 32),
        audience=signer.public,
        resource=Resource(kind=ResourceKind.SERVICE, name="worker"),
        rights=(Right.OPERATE,),
        nbf_ns=0,
        exp_ns=SECOND,
        nonce=b"n" * 16,
    )


class Listener:
    """In place of a muninn room: `heard` is every execution that was reported."""

    def __init__(self) -> None:
        self.heard: list[Execution] = []

    async def call(self, room: str, message: bytes) -> bytes:
        envelope = decode_envelope(message)
        assert (room, envelope.op) == ("muninn", "report")
        entries = decode_record(Report, envelope.body, size_max=MESSAGE_BYTES_MAX).entries
        self.heard += entries
        results = [Reported(result="inserted") for _ in entries]
        return seal_reply(encode_record(Results(results=results)))

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        raise AssertionError(f"nothing of {room} is streamed to a worker")


class Board(Listener):
    """In place of a ropes room besides: `blocks` are public. `asked`: how often it was asked;
    `fails`: with what it answers instead."""

    def __init__(self, blocks: Iterable[BlockId] = ()) -> None:
        super().__init__()
        self.blocks = set(blocks)
        self.asked = 0
        self.fails: HuginnError | None = None

    async def call(self, room: str, message: bytes) -> bytes:
        if room != "ropes":
            return await super().call(room, message)
        assert decode_envelope(message).op == "publications"
        self.asked += 1
        if self.fails is not None:
            return seal_error(self.fails)
        rows = [
            Publication(block=block, role="user", type="other", content_bytes=1)
            for block in sorted(self.blocks)
        ]
        return seal_reply(encode_record(Publications(blocks=rows)))


def stated(segments: Iterable[Segment]) -> bytes | None:
    """What the assembler states of public segments; None for none."""
    first = list(segments)
    return state_prefix(ASSEMBLER, PROFILE_NAME, first) if first else None


async def until(condition: Callable[[], bool], *, pause_s: float = 0) -> None:
    """Let the loop run until the condition holds; a minute at most."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(pause_s)


async def inline(run: Callable[[], object]) -> object:
    """In place of a thread: tables in memory never block."""
    return run()


@dataclass
class Bench:
    """A room, and what a test looks at."""

    room: WorkerRoom
    backend: Any
    clock: HandClock
    tables: MemoryTables

    async def answer(self, segments: Iterable[Segment], **options: Any) -> Result:
        """The whole answer to a prompt, and its receipt with the state digest."""
        domain = options.pop("domain", "alice")
        call = call_from(domain, rights=options.pop("rights", RIGHTS))
        ask = asked(segments, **options)
        return Result([item async for item in self.room.on_generate(call, ask)])

    async def settle(
        self, segments: Iterable[Segment], *, domain: str = "alice", public: bytes | None = None
    ) -> None:
        ask = Settle(response="s", segments=list(segments), public=public)
        await self.room.on_settle(call_from(domain), ask)

    async def receipt(
        self, response: str = "r1", *, domain: str = "alice", looks: int = 1_000
    ) -> Receipt:
        """The receipt, once its state digest is known, or after so many looks, 2 ms apart: exports
        wait for everybody's prompts."""
        ask = AskReceipt(response=response)
        for _ in range(looks):
            found = await self.room.on_receipt(call_from(domain), ask)
            if found.state_digest is not None:
                break
            await asyncio.sleep(0.002)
        return found

    async def quiet(self) -> None:
        """Wait until the engine has nothing to do."""
        engine = self.room._engine
        await until(lambda: not (engine.running or engine.waiting or engine.streams_busy))


@dataclass
class Result:
    """An answer's items, and what they add up to."""

    items: list[Item]

    @property
    def ids(self) -> TokenIds:
        return unpack(b"".join(item.ids or b"" for item in self.items))

    @property
    def text(self) -> str:
        return "".join(item.text or "" for item in self.items)

    @property
    def finish(self) -> str | None:
        return self.items[-1].finish

    @property
    def receipt(self) -> Receipt:
        found = self.items[-1].receipt
        assert found is not None
        return found


@asynccontextmanager
async def opened(
    backend: Any = None,
    *,
    clock: HandClock | None = None,
    driver: Driver | None = None,
    profile: ProfileId = PROFILE,
    tiers: Tiers | None = None,
    mailbox: Mailbox | None = None,
    public_table: Any = None,
    ledgers: LedgerPorts | None = None,
    **limits: Any,
) -> AsyncIterator[Bench]:
    """A room on `backend` (a fake one), drained afterwards."""
    backend = backend or FakeBackend(chunk_tokens=CHUNK)
    clock = clock or HandClock()
    tables = MemoryTables()
    room = WorkerRoom(
        world(clock, mailbox),
        backend,
        profile,
        ModelInfo(
            name="fake",
            profile=profile,
            context_tokens=backend.context_tokens,
            instruct=True,
            grammar="fake",
        ),
        tables.keyed("receipts"),
        profile_name=PROFILE_NAME,
        public_table=public_table,
        ledgers=ledgers,
        tiers=tiers,
        limits=WorkerLimits(**{"chunk_tokens": CHUNK, "drain_ns": SECOND // 10, **limits}),
        driver=driver,
        blocking=inline,
    )
    try:
        yield Bench(room, backend, clock, tables)
    finally:
        await room.drain()
