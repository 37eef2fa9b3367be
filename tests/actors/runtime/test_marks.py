"""The high mark of a door: every room keeps one, and a restart reopens no replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.runtime.marks import TABLE, TableMark
from actors.runtime.plan import ROOMS, Plan, prepare, room_signer
from actors.runtime.wiring import build_room
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.envelope import open_reply, seal
from protocol.errors import CorruptObject, HuginnError, InvocationError, Unavailable
from protocol.messages import Empty
from protocol.record import encode_record
from store.memory_tables import MemoryTables
from tests.chains import NOW, SECOND
from tests.installations import tiny_config


class NoMailbox:
    async def call(self, room: str, message: bytes) -> bytes:
        raise Unavailable("nobody is here")

    async def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        raise Unavailable("nobody is here")
        yield b""


def test_a_mark_is_what_was_kept_last() -> None:
    tables = MemoryTables()
    mark = TableMark(tables)
    assert mark.read() == 0
    mark.keep_soon(NOW).result()
    mark.keep_soon(NOW + SECOND).result()
    assert TableMark(tables).read() == NOW + SECOND
    tables.keyed(TABLE).put(b"high", b"short")
    with pytest.raises(CorruptObject, match="8 bytes, not 5"):
        mark.read()


def notice(plan: Plan, room: str, ts_ns: int) -> bytes:
    """Something that every room has to answer: a notice that the authority does not send."""
    home, entropy = plan.config.home_path, SystemEntropy()
    return seal(
        plan.service_chains["ropes"],
        room_signer(home, "ropes", entropy),
        room=room,
        op="revocations",
        body=encode_record(Empty()),
        ts_ns=ts_ns,
        nonce=entropy.draw(16),
        request_id="test",
    )


def step(reply: bytes) -> object:
    try:
        open_reply(reply)
    except HuginnError as error:
        return error.details.get("step") if isinstance(error, InvocationError) else error.code
    return None


@pytest.mark.req("AUT-2")
async def test_no_room_accepts_again_what_it_accepted_before_its_restart(tmp_path: Path) -> None:
    """Signed by a clock that is 20 s ahead of the room's: within what is accepted, and after the
    restart still not too old."""
    plan = await prepare(tiny_config(tmp_path / "home"), SystemClock(), SystemEntropy())
    for name in ROOMS:
        message = notice(plan, name, SystemClock().wall_ns() + 20 * SECOND)
        first = build_room(plan, name, NoMailbox())
        # Admitted: what it says is what is wrong with it.
        assert step(await first.receive(message)) == "record", name
        assert step(await first.receive(message)) == "nonce"
        await first.drain()
        again = build_room(plan, name, NoMailbox())
        assert step(await again.receive(message)) == "start", name
        await again.drain()
