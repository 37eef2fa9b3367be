"""Envelopes and replies: what goes in comes out, and every field is signed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.envelope import (
    DELEGATIONS_MAX,
    Envelope,
    Order,
    decode_envelope,
    encode_envelope,
    open_reply,
    seal,
    seal_error,
    seal_reply,
)
from protocol.errors import (
    CapabilityError,
    EncodingError,
    FaultError,
    HuginnError,
    NotVisible,
    RecordError,
    WorkerFault,
)
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.record import to_value
from tests.chains import NOW, PRINCIPAL, nonce, turn_chain


def message(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "room": "assembler",
        "op": "assemble",
        "body": b"body",
        "ts_ns": NOW,
        "nonce": nonce(7),
        "request_id": "req-1",
        "delegations": {"ropes": turn_chain("ropes")},
        "order": Order(turn=b"turn", sequence=3),
    }
    return seal(turn_chain("assembler"), PRINCIPAL, **{**fields, **changes})


def test_what_is_sealed_comes_back() -> None:
    envelope = decode_envelope(message())
    assert encode_envelope(envelope) == message()
    assert (envelope.room, envelope.op, envelope.request_id) == ("assembler", "assemble", "req-1")
    assert envelope.chain == turn_chain("assembler")
    assert envelope.body == b"body"
    assert envelope.delegations == {"ropes": turn_chain("ropes")}
    assert envelope.order == Order(turn=b"turn", sequence=3)


@pytest.mark.parametrize("empty", [None, {}])
def test_what_is_absent_is_left_out(empty: dict[str, tuple[bytes, ...]] | None) -> None:
    data = message(delegations=empty, order=None)
    fields = cbor.decode(data)
    assert isinstance(fields, dict)
    assert set(fields) == {"v", "room", "op", "request_id", "chain", "invocation", "body"}
    envelope = decode_envelope(data)
    assert (envelope.delegations, envelope.order) == (None, None)


@pytest.mark.req("AUT-2")
def test_every_field_but_the_chain_and_the_invocation_is_signed() -> None:
    envelope = decode_envelope(message())
    changed: dict[str, Any] = {
        "room": "worker",
        "op": "other",
        "request_id": "req-2",
        "body": b"bodY",
        "delegations": {"ropes": turn_chain("worker")},
        "order": Order(turn=b"turn", sequence=4),
    }
    assert set(changed) | {"v", "chain", "invocation"} == set(Envelope.__struct_fields__)
    digests = {envelope.arguments()}
    for field, value in changed.items():
        digests.add(msgspec.structs.replace(envelope, **{field: value}).arguments())
    for field in ("delegations", "order"):
        digests.add(msgspec.structs.replace(envelope, **{field: None}).arguments())
    assert len(digests) == 1 + len(changed) + 2


@pytest.mark.parametrize(
    "changes",
    [
        {"room": "a//b"},
        {"op": ""},
        {"request_id": "x" * 129},
        {"delegations": {str(n): () for n in range(DELEGATIONS_MAX + 1)}},
    ],
)
def test_fields_have_their_rules(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        message(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"extra": 1},
        {"chain": None},
        {"order": None},
        {"order": {"turn": b"", "sequence": 0}},
        {"order": {"turn": b"x", "sequence": -1}},
        {"delegations": {}},
        {"body": "x"},
    ],
)
def test_other_records_are_no_envelopes(changes: dict[str, cbor.Value]) -> None:
    value = {**to_value(decode_envelope(message())), **changes}  # type: ignore[dict-item]
    with pytest.raises(RecordError):
        decode_envelope(cbor.encode(value))


def test_a_message_has_a_largest_size() -> None:
    with pytest.raises(EncodingError, match="size"):
        decode_envelope(bytes(MESSAGE_BYTES_MAX + 1))


def test_a_chain_that_cannot_be_read_cannot_be_sealed() -> None:
    with pytest.raises(CapabilityError) as caught:
        seal(
            (b"",),
            PRINCIPAL,
            room="a",
            op="b",
            body=b"",
            ts_ns=NOW,
            nonce=nonce(1),
            request_id="",
        )
    assert caught.value.step == "decode"


@given(st.binary(max_size=100))
def test_a_reply_gives_its_body(body: bytes) -> None:
    assert open_reply(seal_reply(body)) == body


@pytest.mark.parametrize(
    "error",
    [
        NotVisible("unknown or not yours", count=3, known=False, note=None),
        CapabilityError("time", "too late"),
        EncodingError("trailing", 7, "bytes after the value"),
        WorkerFault("the worker died"),
    ],
)
def test_a_reply_raises_the_error_that_it_carries(error: HuginnError) -> None:
    with pytest.raises(type(error)) as caught:
        open_reply(seal_error(error))
    assert type(caught.value) is type(error)
    assert caught.value.to_map() == error.to_map()


@pytest.mark.parametrize(
    "value",
    [
        {"v": 1},
        {"v": 1, "body": b"", "error": {"code": "fault", "message": "", "details": {}}},
        {"v": 1, "body": None},
        {"v": 1, "error": {"code": "fault", "message": ""}},
        {"v": 1, "error": {"code": "fault", "message": "", "details": {"x": [1]}}},
        {"v": 2, "body": b""},
        {"v": 1, "body": b"", "more": 1},
        [],
    ],
)
def test_other_records_are_no_replies(value: cbor.Value) -> None:
    with pytest.raises(RecordError):
        open_reply(cbor.encode(value))


@pytest.mark.parametrize("code", ["encoding", "capability", "unheard of"])
def test_an_error_that_cannot_be_rebuilt_is_a_fault(code: str) -> None:
    carried: dict[str, cbor.Value] = {"code": code, "message": "m", "details": {}}
    with pytest.raises(FaultError, match="not an error record"):
        open_reply(cbor.encode({"v": 1, "error": carried}))


def test_bytes_that_are_no_reply_are_refused() -> None:
    with pytest.raises(EncodingError, match="empty"):
        open_reply(b"")
