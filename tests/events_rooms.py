"""Events rooms for tests: over logs and tables in memory or on disk, and keys that are derived.

`House` is an installation of `tests.rooms` with an events room, and a shorthand for each message.
`crash` throws the room away and builds it anew from what is stored, as a killed process would.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actors.events.ports import SourceKeys
from actors.events.reminder import is_reminder
from actors.events.room import EventsRoom
from actors.events.sessions import SessionLimits
from actors.room import World
from protocol import cbor
from protocol.blocks import BlockType, Role, text_block
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.messages.ropes import NewBlock
from protocol.record import Record
from protocol.signing import Signer
from protocol.tokenizer import Tokenizer
from store.events import EventLogs
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from store.tables import Tables
from tests.fake_tokenizer import FakeTokenizer
from tests.rooms import SECOND, Installation, Principal

R = TypeVar("R", bound=Record)

BUDGET = 20_000
NAMESPACE = "alice"


class DerivedKeys:
    """`SourceKeys` that makes each key from its name."""

    def signer(self, name: str) -> Signer:
        return Signer(hashlib.sha256(name.encode()).digest())

    def destroy(self, name: str) -> bool:
        return True

    def keep_only(self, names: Collection[str]) -> None:
        """Nothing is kept of any."""


def events_room(world: World, tables: MemoryTables | None = None, **changes: Any) -> EventsRoom:
    """A room in memory; `changes` are arguments of EventsRoom."""
    tables = tables or MemoryTables()
    fields: dict[str, Any] = {
        "logs": MemoryEventLogs(tables),
        "tables": tables,
        "tokenizer": FakeTokenizer(),
        "keys": DerivedKeys(),
        **changes,
    }
    return EventsRoom(world, **fields)


def said(role: Role, text: str) -> NewBlock:
    """A message as a gateway makes it."""
    kind = {
        Role.SYSTEM: BlockType.INSTRUCTION,
        Role.USER: BlockType.USER_TURN,
        Role.MODEL: BlockType.MODEL_TURN,
        Role.TOOL: BlockType.TOOL_RESULT,
    }[role]
    return NewBlock(block=text_block(role, kind, text), content=text.encode())


def user(text: str) -> NewBlock:
    return said(Role.USER, text)


def model(text: str) -> NewBlock:
    return said(Role.MODEL, text)


def texts(blocks: Sequence[NewBlock]) -> list[str]:
    return [block.content.decode() for block in blocks]


def reminders(blocks: Sequence[NewBlock]) -> list[str]:
    """The texts of the reminders among `blocks`."""
    return [block.content.decode() for block in blocks if is_reminder(block)]


def merged(story: str, **changes: Any) -> messages.NewEvent:
    """A story that was merged."""
    fields: dict[str, Any] = {
        "kind": "MergeSucceeded",
        "subject": story,
        "body": cbor.encode({"merge_commit": f"c{story}"}),
        **changes,
    }
    return messages.NewEvent(**fields)


@dataclass
class House:
    """An installation with an events room over `logs` and `tables`, used by `alice`."""

    tables: Tables = field(default_factory=MemoryTables)
    logs: EventLogs | None = None
    limits: SessionLimits = field(default_factory=lambda: SessionLimits(render_tokens=BUDGET))
    options: dict[str, Any] = field(default_factory=dict)
    tokenizer: Tokenizer = field(default_factory=FakeTokenizer)
    keys: SourceKeys = field(default_factory=DerivedKeys)
    rooms: Installation = field(default_factory=Installation)
    principal: Principal = field(init=False)
    room: EventsRoom = field(init=False)

    def __post_init__(self) -> None:
        self.rooms.signers["events"] = Signer(self.rooms.entropy.draw(32))
        self.rooms.room_to_key["events"] = self.rooms.signers["events"].public
        if self.logs is None:
            assert isinstance(self.tables, MemoryTables)
            self.logs = MemoryEventLogs(self.tables)
        self._responses = 0
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> House:
        await self.rooms.start()
        self.principal = await self.rooms.enroll(NAMESPACE)
        await self.crash()
        return self

    async def crash(self) -> None:
        """The room is gone, and another one finds what is stored."""
        # Whatever was said to the room before counts as replayed.
        self.rooms.clock.now_ns += SECOND
        if self._sweeper is not None:
            # The one thing that a room does by itself dies with it.
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        self.room = EventsRoom(
            self.rooms.world("events"),
            self.logs,  # type: ignore[arg-type]
            self.tables,
            tokenizer=self.tokenizer,
            keys=self.keys,
            limits=self.limits,
            **self.options,
        )
        await self.rooms.add(self.room)
        self._sweeper = self.room._sources._sweeper

    def passes(self, seconds: float) -> None:
        self.rooms.clock.now_ns += int(seconds * SECOND)

    async def ask(
        self, op: str, record: Record, reply: type[R], *, as_: Principal | None = None
    ) -> R:
        caller = (as_ or self.principal).caller
        return await caller.ask("events", op, record, reply, delegate=("ropes",))

    # -- sources -----------------------------------------------------------------------------

    async def source(self, name: str, namespace: str = NAMESPACE) -> messages.SourceRow:
        ask = messages.AddSource(namespace=namespace, name=name)
        return await self.ask("add_source", ask, messages.SourceRow)

    async def emit(
        self, source: str, *events: messages.NewEvent, namespace: str = NAMESPACE
    ) -> messages.Appended:
        ask = messages.AppendEvents(namespace=namespace, source=source, events=list(events))
        return await self.ask("append", ask, messages.Appended)

    # -- sessions ----------------------------------------------------------------------------

    async def open(self, **changes: Any) -> messages.SessionRow:
        fields: dict[str, Any] = {
            "namespace": NAMESPACE,
            "persona": "Timmy",
            "since": "beginning",
            **changes,
        }
        return await self.ask("open_session", messages.OpenSession(**fields), messages.SessionRow)

    async def turns(self, session: str) -> messages.Turns:
        ask = messages.AskSession(namespace=NAMESPACE, id=session)
        return await self.ask("turns", ask, messages.Turns)

    async def preview(self, session: str, **changes: Any) -> messages.Previewed:
        ask = messages.Preview(namespace=NAMESPACE, session=session, **changes)
        return await self.ask("preview", ask, messages.Previewed)

    async def begin(self, session: str | None, **changes: Any) -> messages.BegunTurn:
        """A turn that waits for nobody."""
        self._responses += 1
        fields: dict[str, Any] = {
            "namespace": NAMESPACE,
            "session": session,
            "response": f"resp-{self._responses}",
            "wait_ns_max": 0,
            **changes,
        }
        return await self.ask("begin_turn", messages.BeginTurn(**fields), messages.BegunTurn)

    async def finish(
        self, begun: messages.BegunTurn, text: str = "Well.", **changes: Any
    ) -> messages.FinishedTurn:
        answer = messages.OutputBlock(text=text, role=Role.MODEL, **changes)
        ask = messages.FinishTurn(
            namespace=NAMESPACE, session=begun.session, turn=begun.turn, answer=answer
        )
        return await self.ask("finish_turn", ask, messages.FinishedTurn)

    async def abandon(self, begun: messages.BegunTurn) -> None:
        ask = messages.AbandonTurn(namespace=NAMESPACE, session=begun.session, turn=begun.turn)
        await self.ask("abandon_turn", ask, Empty)

    async def renew(self, begun: messages.BegunTurn) -> messages.Renewed:
        ask = messages.RenewTurn(namespace=NAMESPACE, session=begun.session, turn=begun.turn)
        return await self.ask("renew_turn", ask, messages.Renewed)

    async def talk(self, session: str, text: str, answer: str = "Well.") -> messages.BegunTurn:
        """A whole turn; what it began with."""
        begun = await self.begin(session, input=[user(text)])
        await self.finish(begun, answer)
        return begun
