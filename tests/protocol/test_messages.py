"""Messages: every operation is asked and answered with records, under a right that exists, by a
room that has it."""

from __future__ import annotations

import inspect
from random import Random
from typing import get_args, get_type_hints

import pytest

from actors.assembler.room import AssemblerRoom
from actors.authority.room import AuthorityRoom
from actors.muninn.room import MuninnRoom
from actors.room import Call, Room
from actors.ropes.room import RopesRoom
from actors.worker.room import WorkerRoom
from protocol import messages
from protocol.errors import RecordError
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages import Empty, Operation, assembler, authority, muninn, ropes, worker
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Right, check_name
from tests.records import RECORDS, Sampler

ROOM_TO_CLASS: dict[str, type[Room]] = {
    "authority": AuthorityRoom,
    "ropes": RopesRoom,
    "muninn": MuninnRoom,
    "assembler": AssemblerRoom,
    "worker": WorkerRoom,
}
TABLES = {
    "authority": authority.OPERATIONS,
    "ropes": ropes.OPERATIONS,
    "muninn": muninn.OPERATIONS,
    "assembler": assembler.OPERATIONS,
    "worker": worker.OPERATIONS,
}
OPERATIONS = [
    (room, op, operation)
    for room, table in TABLES.items()
    for op, operation in {**table, **authority.NOTICE}.items()
]
every_operation = pytest.mark.parametrize(
    ("room", "op", "operation"), OPERATIONS, ids=[f"{room} {op}" for room, op, _ in OPERATIONS]
)
MESSAGES = [kind for kind in RECORDS if kind.__module__.startswith(messages.__name__)]


@pytest.mark.req("ID-1")
@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_from_its_bytes(kind: type[Record]) -> None:
    for seed in range(30):
        record = Sampler(Random(seed), present=(0.0, 0.5, 1.0)[seed % 3]).record(kind)
        data = encode_record(record, size_max=MESSAGE_BYTES_MAX)
        assert decode_record(kind, data, size_max=MESSAGE_BYTES_MAX) == record
        with pytest.raises(RecordError):
            decode_record(kind, encode_record(_More(more=1)))


class _More(Record):
    more: int


def test_every_record_of_a_message_is_walked() -> None:
    asked = {operation.ask for _, _, operation in OPERATIONS}
    answered = {operation.reply for _, _, operation in OPERATIONS}
    assert asked | answered <= set(MESSAGES)


@pytest.mark.req("AUT-2")
@every_operation
def test_an_operation_is_two_records_and_a_right_of_the_vocabulary(
    room: str, op: str, operation: Operation
) -> None:
    check_name(room)
    check_name(op)
    assert issubclass(operation.ask, Record)
    assert issubclass(operation.reply, Record)
    assert operation.right is None or Right(operation.right).value == operation.right


@every_operation
def test_its_room_has_a_method_for_it(room: str, op: str, operation: Operation) -> None:
    kind = ROOM_TO_CLASS[room]
    assert kind.operations is TABLES[room] or op in authority.NOTICE
    method = getattr(kind, f"on_{op}")
    assert inspect.isasyncgenfunction(method) is operation.streams
    assert inspect.iscoroutinefunction(method) is not operation.streams
    hints = get_type_hints(method)
    assert hints["call"] is Call
    assert hints["ask"] is operation.ask
    given = get_args(hints["return"])[0] if operation.streams else hints["return"]
    # The notice is answered by what every room says to it, which is nothing.
    assert given is operation.reply or (op in authority.NOTICE and given is Record)


@pytest.mark.parametrize("room", TABLES)
def test_a_room_has_no_method_that_no_operation_names(room: str) -> None:
    """What no right guards cannot be asked for, and nobody calls it."""
    names = {name for name in dir(ROOM_TO_CLASS[room]) if name.startswith("on_")}
    assert names == {f"on_{op}" for op in {**TABLES[room], **authority.NOTICE}}


@pytest.mark.req("AUT-2")
def test_no_right_of_a_principal_reaches_what_only_rooms_say() -> None:
    for room, op, operation in OPERATIONS:
        if op in ("erase", "request_erasure", "erasure", "erasures"):
            # A principal may have it: `erase` itself a room takes from the authority alone.
            assert operation.right == "erase", f"{room} {op}"
        elif op in ("set_retention", "retentions"):
            # The operator's: a handle on everything, which no room's own is.
            assert operation.right == "operate", op
        elif op in ("revocations", "current", "register", "refused", "audit"):
            assert operation.right == "operate", f"{room} {op}"
        elif op in ("stats", "charges", "use"):
            # The operator's too: what a worker does, for whom, and what it takes.
            assert operation.right == "operate", f"{room} {op}"
        elif op == "charge":
            # A principal's own.
            assert operation.right == "generate", f"{room} {op}"
        elif op in ("hand_out", "handed_out", "take_back"):
            # Whatever the handle may do: it is about what the caller itself gave out.
            assert operation.right is None, op
        elif room == "authority":
            assert operation.right in ("grant", "revoke"), op
        elif room == "muninn":
            # Rooms report, the operator operates; a look is made with the caller's own handle.
            assert operation.right == ("telemetry" if op == "look" else "operate"), op
        elif op in ("publish", "withdraw", "publications"):
            # What is public is the operator's word, and the rooms ask for it among themselves.
            assert operation.right == "operate", f"{room} {op}"
        else:
            assert operation.right not in ("grant", "revoke", "operate", "erase"), f"{room} {op}"


def test_nothing_to_say_is_one_byte() -> None:
    assert encode_record(Empty()) == b"\xa0"


def test_greedy_is_every_knob_turned_off() -> None:
    assert worker.GREEDY.temperature_ppm == 0
    off = {"top_p_ppm": 1_000_000, "repeat_penalty_ppm": 1_000_000, "logit_bias": [], "seed": None}
    for name in worker.Sampler.__struct_fields__:
        assert getattr(worker.GREEDY, name) == off.get(name, 0), name
