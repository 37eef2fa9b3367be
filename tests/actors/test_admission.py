"""Nothing is done before a message is admitted: once, with its right, and never after a restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest

from actors.runtime.marks import TableMark
from actors.runtime.world import SystemClock
from protocol.capability import issue
from protocol.envelope import decode_envelope, encode_envelope, open_reply
from protocol.errors import (
    CapabilityError,
    ContentError,
    EncodingError,
    HuginnError,
    InvocationError,
    RecordError,
)
from protocol.messages.authority import Revoke
from protocol.record import encode_record
from protocol.resource import ALL, Right
from protocol.signing import Signer
from tests.echo_house import EVERY, OPERATIONS, Echo, House, Say, kept, said
from tests.records import Sampler
from tests.rooms import SECOND, YEAR_NS, opened, reply_to


def changed(message: bytes, **fields: object) -> bytes:
    return encode_envelope(msgspec.structs.replace(decode_envelope(message), **fields))


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
@pytest.mark.parametrize(
    ("room", "op"), [(room, op) for room, op in EVERY if OPERATIONS[room][op].right is not None]
)
async def test_every_operation_wants_its_right(house: House, room: str, op: str) -> None:
    """With a handle that has some right on everything of its own, but not this one."""
    installation = house.installation
    operation = OPERATIONS[room][op]
    others = sorted({"read", "write", "observe"} - {str(operation.right)})
    weak = await installation.enroll("weak", rights=others)
    before = kept(installation)
    record = Sampler(Random(op)).record(operation.ask)
    with pytest.raises(InvocationError) as caught:
        opened(await reply_to(weak, room, op, record), operation.reply)
    assert caught.value.step == "right"
    assert kept(installation) == before
