"""A room that says what it is told, in an installation, for tests of every room's edge."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import ClassVar

from actors.room import Call, Room, World
from protocol.messages import Operation, assembler, authority, ropes
from protocol.record import Record
from tests.rooms import ROOMS, Installation, Principal, opened

OPERATIONS = {
    "authority": authority.OPERATIONS,
    "ropes": ropes.OPERATIONS,
    "assembler": assembler.OPERATIONS,
}
EVERY = [(room, op) for room in ROOMS for op in OPERATIONS[room]]


class Say(Record):
    what: str


class Echo(Room):
    """Says what it is told, and raises what `error` holds. `heard` is all that it was asked."""

    operations: ClassVar[dict[str, Operation]] = {
        "say": Operation(Say, Say, "read"),
        "spell": Operation(Say, Say, "read", streams=True),
        "place": Operation(Say, Say, "operate"),
    }

    def __init__(self, world: World) -> None:
        super().__init__("worker", world)
        self.heard: list[str] = []
        self.error: Exception | None = None
        self.closed = 0

    async def on_say(self, call: Call, ask: Say) -> Say:
        self.heard.append(ask.what)
        if self.error is not None:
            raise self.error
        return ask

    async def on_spell(self, call: Call, ask: Say) -> AsyncGenerator[Say, None]:
        self.heard.append(ask.what)
        try:
            for letter in ask.what:
                yield Say(what=letter)
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1

    async def on_place(self, call: Call, ask: Say) -> Say:
        return Say(what=call.domain if ask.what == "domain" else str(call.namespace_root()))


class House:
    """An installation with an echo in it, two principals and an operator."""

    def __init__(self, installation: Installation, echo: Echo) -> None:
        self.installation = installation
        self.echo = echo
        self.op = "say"
        self.alice: Principal
        self.bob: Principal
        self.writer: Principal
        self.operator: Principal

    async def ask(self, message: bytes) -> Say:
        return opened(await self.echo.receive(message), Say)

    async def spelt(self, message: bytes) -> list[bytes]:
        return [item async for item in self.echo.stream(message)]


async def echo_house() -> House:
    """A new house; the echo stands where the worker would."""
    installation = await Installation().start()
    made = House(installation, Echo(installation.world("worker")))
    await installation.add(made.echo)
    made.alice = await installation.enroll("alice")
    made.bob = await installation.enroll("bob")
    made.writer = await installation.enroll("writer", rights=["write"])
    made.operator = await installation.enroll("operator", administers=True)
    return made


def said(house: House, by: str = "alice", **changes: object) -> bytes:
    """A message to the echo under the house's `op`; `changes` are arguments of `seal`."""
    who: Principal = getattr(house, by)
    return who.message("worker", house.op, Say(what="x"), **changes)


def kept(installation: Installation) -> object:
    """All that a message could have left behind, to compare."""
    tables = ("principals", "revoked", "contracts")
    rows = [installation.tables.rows(name) for name in tables]
    return installation.store.stats(), rows, installation.tables.entries("audit")
