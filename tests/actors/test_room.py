"""A room's edge: nothing is done before a message is admitted, and nothing is raised across it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from random import Random
from typing import ClassVar

import msgspec
import pytest

from actors.room import Call, Room, World
from actors.runtime.marks import TableMark
from actors.runtime.world import SystemClock
from protocol.capability import issue
from protocol.envelope import Envelope, decode_envelope, encode_envelope, open_reply, seal
from protocol.errors import (
    CODE_TO_ERROR,
    CapabilityError,
    ContentError,
    EncodingError,
    FaultError,
    HuginnError,
    InvocationError,
    RecordError,
)
from protocol.messages import Empty, Operation, assembler, authority, ropes
from protocol.messages.authority import Revocations, Revoke
from protocol.record import Record, encode_record
from protocol.resource import ALL, Right
from protocol.signing import Signer
from tests.records import Sampler
from tests.rooms import ROOMS, SECOND, YEAR_NS, Installation, Principal, opened, reply_to

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


@pytest.fixture
async def house() -> House:
    installation = await Installation().start()
    made = House(installation, Echo(installation.world("worker")))
    await installation.add(made.echo)
    made.alice = await installation.enroll("alice")
    made.bob = await installation.enroll("bob")
    made.writer = await installation.enroll("writer", rights=["write"])
    made.operator = await installation.enroll("operator", administers=True)
    return made


async def test_what_is_asked_is_answered(house: House) -> None:
    assert await house.ask(house.alice.message("worker", "say", Say(what="hi"))) == Say(what="hi")
    items = await house.spelt(house.alice.message("worker", "spell", Say(what="abc")))
    assert [opened(item, Say).what for item in items] == ["a", "b", "c"]
    assert house.echo.heard == ["hi", "abc"]


def error(kind: type[HuginnError]) -> HuginnError:
    details = {name: needed() for name, needed in kind.DETAILS.items()}
    return kind.rebuild(f"about {kind.code}", {**details, "number": 3, "nothing": None})


@pytest.mark.parametrize("code", CODE_TO_ERROR)
async def test_every_error_comes_back_as_its_own_class(house: House, code: str) -> None:
    house.echo.error = error(CODE_TO_ERROR[code])
    replies = [
        await house.echo.receive(house.alice.message("worker", "say", Say(what="x"))),
        (await house.spelt(house.alice.message("worker", "spell", Say(what="xy"))))[-1],
    ]
    for reply in replies:
        with pytest.raises(HuginnError) as caught:
            open_reply(reply)
        assert type(caught.value) is CODE_TO_ERROR[code]
        assert caught.value.to_map() == house.echo.error.to_map()


async def test_a_fault_of_ours_tells_nothing_but_that_it_was_ours(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.echo.error = RuntimeError("alice's secret is 42")
    reply = await house.echo.receive(house.alice.message("worker", "say", Say(what="x")))
    items = await house.spelt(house.alice.message("worker", "spell", Say(what="xy")))
    assert len(items) == 3
    for answer in (reply, items[-1]):
        with pytest.raises(FaultError, match="the worker room failed; its log says why"):
            open_reply(answer)
        assert b"secret" not in answer
    assert caplog.text.count("alice's secret is 42") >= 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def test_a_stream_that_is_left_is_closed(house: House) -> None:
    stream = house.echo.stream(house.alice.message("worker", "spell", Say(what="abc")))
    assert isinstance(stream, AsyncGenerator)
    assert opened(await anext(stream), Say) == Say(what="a")
    await stream.aclose()
    assert house.echo.closed == 1


async def test_cancellation_is_no_answer(house: House) -> None:
    house.echo.error = asyncio.CancelledError()  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        await house.echo.receive(house.alice.message("worker", "say", Say(what="x")))


def changed(message: bytes, **fields: object) -> bytes:
    return encode_envelope(msgspec.structs.replace(decode_envelope(message), **fields))


def said(house: House, by: str = "alice", **changes: object) -> bytes:
    who: Principal = getattr(house, by)
    return who.message("worker", house.op, Say(what="x"), **changes)


def elsewhere(house: House) -> tuple[bytes, ...]:
    """A chain that another root gave to alice's own key."""
    now_ns = house.installation.clock.wall_ns()
    return issue(
        Signer(b"\x07" * 32),
        audience=house.alice.signer.public,
        resource=ALL,
        rights=list(Right),
        nbf_ns=now_ns,
        exp_ns=now_ns + YEAR_NS,
        nonce=b"n" * 16,
    )


def at(house: House, seconds: int) -> int:
    return house.installation.clock.wall_ns() + seconds * SECOND


def stolen(house: House) -> bytes:
    """Alice's message with a delegation in it that bob once gave to this room."""
    chain = house.bob.chain("ropes", audience=house.installation.room_to_key["worker"])
    return said(house, delegations={"ropes": chain})


WRONG_KIND = {"say": "spell", "spell": "say"}
REFUSALS: dict[str, tuple[Callable[[House], bytes], type[HuginnError], str | None]] = {
    "no bytes": (lambda h: b"", EncodingError, None),
    "bytes of no kind": (lambda h: b"\xff\x00rubbish", EncodingError, None),
    "no envelope": (lambda h: encode_record(Say(what="x")), RecordError, None),
    "another room": (
        lambda h: h.alice.message("ropes", h.op, Say(what="x")),
        InvocationError,
        "service",
    ),
    "no such operation": (
        lambda h: h.alice.message("worker", "shout", Say(what="x")),
        InvocationError,
        "operation",
    ),
    "an operation changed": (lambda h: changed(said(h), op="place"), InvocationError, "operation"),
    "a body changed": (
        lambda h: changed(said(h), body=encode_record(Say(what="y"))),
        InvocationError,
        "arguments",
    ),
    "a request id changed": (
        lambda h: changed(said(h), request_id="other"),
        InvocationError,
        "arguments",
    ),
    "another's signature": (
        lambda h: said(h, signer=h.bob.signer),
        InvocationError,
        "signer",
    ),
    "another's chain": (
        lambda h: changed(said(h), chain=h.bob.chain("worker")),
        InvocationError,
        "signer",
    ),
    "a handle for another room": (
        lambda h: said(h, chain=h.alice.chain("ropes")),
        InvocationError,
        "service",
    ),
    "no such right": (lambda h: said(h, by="writer"), InvocationError, "right"),
    "another root": (lambda h: said(h, chain=elsewhere(h)), CapabilityError, "anchor"),
    "no chain": (lambda h: changed(said(h), chain=()), CapabilityError, "length"),
    "a handle that ended": (
        lambda h: said(h, chain=h.alice.chain("worker", exp_ns=at(h, 0))),
        CapabilityError,
        "time",
    ),
    "signed too long ago": (lambda h: said(h, ts_ns=at(h, -31)), InvocationError, "time"),
    "signed in the future": (lambda h: said(h, ts_ns=at(h, 31)), InvocationError, "time"),
    "before this room began": (lambda h: said(h, ts_ns=at(h, -29)), InvocationError, "start"),
    "a delegation of another": (stolen, InvocationError, "delegation"),
    "another record": (
        lambda h: said(h, body=encode_record(Revoke(name="x"))),
        RecordError,
        None,
    ),
    "a body of no kind": (lambda h: said(h, body=b"\xff"), EncodingError, None),
    "asked as the wrong kind of call": (
        lambda h: h.alice.message("worker", WRONG_KIND[h.op], Say(what="x")),
        ContentError,
        None,
    ),
}


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("op", ["say", "spell"])
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_message_that_is_not_admitted_touches_nothing(
    house: House, name: str, op: str
) -> None:
    make, kind, step = REFUSALS[name]
    house.op = op
    house.installation.clock.now_ns += SECOND
    message = make(house)
    replies = [await house.echo.receive(message)] if op == "say" else await house.spelt(message)
    assert len(replies) == 1
    with pytest.raises(HuginnError) as caught:
        open_reply(replies[0])
    assert type(caught.value) is kind
    assert caught.value.details.get("step") == step
    assert house.echo.heard == []


@pytest.mark.req("AUT-2")
async def test_a_message_is_admitted_once(house: House) -> None:
    message = said(house)
    assert await house.ask(message) == Say(what="x")
    for _ in range(2):
        with pytest.raises(InvocationError) as caught:
            await house.ask(message)
        assert caught.value.step == "nonce"
    assert house.echo.heard == ["x"]


@pytest.mark.req("AUT-2")
async def test_a_restart_reopens_no_replay(house: House) -> None:
    message = said(house)
    await house.ask(message)
    house.installation.clock.now_ns += SECOND
    again = Echo(house.installation.world("worker"))
    await house.installation.add(again)
    with pytest.raises(InvocationError) as caught:
        opened(await again.receive(message), Say)
    assert caught.value.step == "start"
    assert again.heard == []


@pytest.mark.req("AUT-2")
async def test_a_room_with_a_mark_refuses_after_a_restart_what_was_signed_ahead(
    house: House,
) -> None:
    installation = house.installation
    marked = replace(installation.world("worker"), mark=TableMark(installation.tables))
    first = Echo(marked)
    await installation.add(first)
    message = said(house, ts_ns=at(house, 20))
    assert opened(await first.receive(message), Say) == Say(what="x")
    installation.clock.now_ns += SECOND
    without = Echo(installation.world("worker"))
    assert opened(await without.receive(message), Say) == Say(what="x")
    again = Echo(marked)
    with pytest.raises(InvocationError) as caught:
        opened(await again.receive(message), Say)
    assert (caught.value.step, again.heard) == ("start", [])


async def test_a_start_close_upon_the_last_message_waits_for_its_mark(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    installation = house.installation
    mark = TableMark(installation.tables)
    now_ns = installation.clock.wall_ns()
    clock = SystemClock()
    mark.keep_soon(now_ns + SECOND // 4).result()
    began_ns = clock.steady_ns()
    await Echo(replace(installation.world("worker"), mark=mark)).start()
    assert clock.steady_ns() - began_ns >= SECOND // 4
    assert not caplog.records
    # A clock that was set back by an hour: said, and not waited for.
    mark.keep_soon(now_ns + 3600 * SECOND).result()
    late = Echo(replace(installation.world("worker"), mark=mark))
    await late.start()
    assert "the clock is 3600 s behind" in caplog.text
    with pytest.raises(InvocationError, match="nothing before"):
        opened(await late.receive(said(house)), Say)


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize(("room", "op"), EVERY)
async def test_every_operation_wants_its_right(house: House, room: str, op: str) -> None:
    """With a handle that has some right on everything of its own, but not this one."""
    installation = house.installation
    operation = OPERATIONS[room][op]
    others = sorted({"read", "write", "observe"} - {operation.right})
    weak = await installation.enroll("weak", rights=others)
    before = kept(installation)
    record = Sampler(Random(op)).record(operation.ask)
    with pytest.raises(InvocationError) as caught:
        opened(await reply_to(weak, room, op, record), operation.reply)
    assert caught.value.step == "right"
    assert kept(installation) == before


def kept(installation: Installation) -> object:
    tables = ("principals", "revoked", "contracts")
    rows = [installation.tables.rows(name) for name in tables]
    return installation.store.stats(), rows, installation.tables.entries("audit")


# -- what a handle says ----------------------------------------------------------------------


async def test_a_call_knows_its_domain_and_namespace_only_if_its_handle_does(
    house: House,
) -> None:
    caller = house.operator.caller
    asked = caller.ask("worker", "place", Say(what="namespace"), Say, administer=True)
    assert await asked == Say(what="None")
    with pytest.raises(ContentError, match="no computation-sharing domain"):
        await caller.ask("worker", "place", Say(what="domain"), Say, administer=True)


async def test_a_room_asks_no_other_for_a_caller_who_did_not_say_so(house: House) -> None:
    ask = assembler.ShowTree(context=Sampler(Random(1)).record(assembler.ShowTree).context)
    with pytest.raises(ContentError, match="no delegation for the ropes room"):
        await house.alice.caller.ask("assembler", "tree", ask, ropes.Tree)
    assert not house.installation.post.asked("ropes", "get", ropes.GetObjects)


# -- revocation ------------------------------------------------------------------------------


def notice(installation: Installation, sender: str, revocations: Revocations) -> bytes:
    """A notice to the echo, signed by the room `sender` under its own service handle."""
    world = installation.world(sender)
    return seal(
        world.service_chain,
        world.signer,
        room="worker",
        op="revocations",
        body=encode_record(revocations),
        ts_ns=installation.clock.wall_ns(),
        nonce=installation.entropy.draw(16),
        request_id=sender,
    )


async def revoked(house: House, name: str) -> Revocations:
    """Revoke `name`; all that is revoked then."""
    operator = house.operator.caller
    await operator.ask("authority", "revoke", Revoke(name=name), Empty, administer=True)
    return await operator.ask("authority", "current", Empty(), Revocations, administer=True)


@pytest.mark.req("AUT-2", "AUT-4")
async def test_only_the_authority_announces_revocations(house: House) -> None:
    known = await revoked(house, "alice")
    later = Revocations(epoch=known.epoch + 5, revoked=[])
    for sender in ("ropes", "worker", "gateway"):
        reply = await house.echo.receive(notice(house.installation, sender, later))
        with pytest.raises(ContentError, match="only the authority"):
            open_reply(reply)
    operator = house.operator.caller
    with pytest.raises(ContentError, match="only the authority"):
        await operator.ask("worker", "revocations", later, Empty, administer=True)
    with pytest.raises(InvocationError, match="operate"):
        await house.bob.caller.ask("worker", "revocations", later, Empty)
    with pytest.raises(CapabilityError, match="revoked"):
        await house.ask(said(house))


@pytest.mark.req("AUT-4")
async def test_an_older_epoch_brings_nobody_back(house: House) -> None:
    known = await revoked(house, "alice")
    for epoch in (0, known.epoch - 1, known.epoch):
        stale = Revocations(epoch=epoch, revoked=[])
        reply = await house.echo.receive(notice(house.installation, "authority", stale))
        assert opened(reply, Empty) == Empty()
        with pytest.raises(CapabilityError, match="revoked"):
            await house.ask(said(house))
    newer = Revocations(epoch=known.epoch + 1, revoked=[])
    await house.echo.receive(notice(house.installation, "authority", newer))
    assert await house.ask(said(house)) == Say(what="x")


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize(("room", "op"), [*EVERY, ("worker", "say"), ("worker", "spell")])
async def test_the_revoked_are_refused_at_every_room_from_the_next_message(
    house: House, room: str, op: str
) -> None:
    installation = house.installation
    operation = Echo.operations[op] if room == "worker" else OPERATIONS[room][op]
    ask = Sampler(Random(op)).record(operation.ask)

    async def refused_at() -> str | None:
        message = house.alice.message(room, op, ask)
        if operation.streams:
            reply = await anext(aiter(installation.post.stream(room, message)))
        else:
            reply = await installation.post.call(room, message)
        try:
            open_reply(reply)
        except HuginnError as refusal:
            return str(refusal.details.get("step"))
        return None

    # The same chain of a principal, verified and remembered there before.
    assert await refused_at() != "revocation"
    await revoked(house, "alice")
    before = kept(installation)
    assert await refused_at() == "revocation"
    assert kept(installation) == before


@pytest.mark.req("AUT-4")
async def test_a_room_that_starts_later_knows(house: House) -> None:
    await revoked(house, "alice")
    house.installation.clock.now_ns += SECOND
    for name in ROOMS:
        await house.installation.restart(name)
    fresh = Echo(house.installation.world("worker"))
    await house.installation.add(fresh)
    for room, op in (("worker", "say"), ("ropes", "get"), ("assembler", "show")):
        with pytest.raises(CapabilityError, match="revoked"):
            opened(await reply_to(house.alice, room, op, Say(what="x")), Say)


@pytest.mark.req("AUT-4")
async def test_a_notice_that_overtakes_the_state_asked_for_at_a_start_stands(
    house: House,
) -> None:
    """The authority answers `current`, then revokes and announces; the answer arrives last."""
    post = house.installation.post
    fresh = Echo(house.installation.world("worker"))
    post.rooms["worker"] = fresh
    overtaken = False

    async def revoke(answered: Envelope) -> None:
        nonlocal overtaken
        if answered.op == "current" and not overtaken:
            overtaken = True
            await revoked(house, "alice")

    post.meanwhile = revoke
    await fresh.start()
    assert overtaken
    with pytest.raises(CapabilityError, match="revoked"):
        opened(await fresh.receive(said(house)), Say)
