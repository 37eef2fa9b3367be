"""Invocations: every step refuses on its own; replay and misdirection get nowhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.capability import attenuate
from protocol.caveats import OperationCaveat, RequestCaveat, ServiceCaveat
from protocol.chain import verify_chain
from protocol.errors import InvocationError, RecordError, Unavailable
from protocol.handle import Handle
from protocol.ids import ArgumentsId, CapabilityId
from protocol.invocation import INVOCATION_CONTEXT, Invocation, invoke, verify_invocation
from protocol.limits import INVOCATION_BYTES_MAX, INVOCATION_SKEW_NS_MAX
from protocol.nonces import NonceWindow
from protocol.record import encode_record, to_value
from protocol.resource import Right
from protocol.signing import Signer, pack_signed
from tests.chains import (
    ANCHOR,
    ANCHORS,
    NOW,
    PRINCIPAL,
    ROOM_A,
    ROOM_B,
    STRANGER,
    nobody,
    nonce,
    principal_chain,
    turn_chain,
)

OPS = {"assemble": Right.ASSEMBLE, "read": Right.READ, "erase": Right.ERASE}
ARGS = b"what is asked"


def handle_of(chain: tuple[bytes, ...]) -> Handle:
    return verify_chain(chain, ANCHORS, NOW, nobody)


HANDLE = handle_of(turn_chain("assembler"))


def signed(signer: Signer = PRINCIPAL, handle: Handle = HANDLE, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "cap": handle.leaf,
        "service": "assembler",
        "op": "assemble",
        "args": ARGS,
        "ts_ns": NOW,
        "nonce": nonce(5),
    }
    return invoke(signer, **{**fields, **changes})


def accept(invocation: bytes, handle: Handle = HANDLE, **changes: Any) -> Invocation:
    fields: dict[str, Any] = {
        "service": "assembler",
        "op": "assemble",
        "op_to_right": OPS,
        "args": ARGS,
        "now_ns": NOW,
        "nonces": NonceWindow(0),
    }
    return verify_invocation(invocation, handle, **{**fields, **changes})


def refused_at(invocation: bytes, handle: Handle = HANDLE, **changes: Any) -> str:
    with pytest.raises(InvocationError) as caught:
        accept(invocation, handle, **changes)
    return caught.value.step


def test_a_sound_invocation_is_accepted() -> None:
    assert accept(signed()) == Invocation(
        v=1,
        cap=HANDLE.leaf,
        service="assembler",
        op="assemble",
        args_digest=ArgumentsId.of(ARGS),
        ts_ns=NOW,
        nonce=nonce(5),
    )


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"extra": 1},
        {"cap": bytes(31)},
        {"args_digest": None},
        {"ts_ns": "now"},
        {"nonce": bytes(15)},
        {"service": ""},
        {"op": "a b"},
    ],
)
def test_step_decode(changes: dict[str, cbor.Value]) -> None:
    value = {**to_value(accept(signed())), **changes}  # type: ignore[dict-item]
    forgery = pack_signed(PRINCIPAL, INVOCATION_CONTEXT, cbor.encode(value))
    assert refused_at(forgery) == "decode"


@pytest.mark.req("AUT-2")
def test_step_decode_of_bytes() -> None:
    for data in (b"", signed() + b"\0", signed()[:-1], bytes(INVOCATION_BYTES_MAX + 1)):
        assert refused_at(data) == "decode"
    # A signed capability is well formed, but no invocation.
    assert refused_at(turn_chain("assembler")[-1]) == "decode"


@pytest.mark.req("AUT-2")
def test_step_signer() -> None:
    for other in (STRANGER, ANCHOR, ROOM_A):
        assert refused_at(signed(other)) == "signer"
    payload = encode_record(accept(signed()))
    assert refused_at(pack_signed(PRINCIPAL, b"huginn.cap/1\0", payload)) == "signer"
    assert refused_at(pack_signed(PRINCIPAL, b"", payload)) == "signer"


@pytest.mark.req("AUT-2")
def test_an_ancestors_audience_cannot_use_the_leaf() -> None:
    """The principal made a handle for a room; only the room can use that one."""
    chain = attenuate(principal_chain(), PRINCIPAL, audience=ROOM_A.public, nonce=nonce(3))
    delegated = handle_of(chain)
    assert refused_at(signed(PRINCIPAL, delegated), delegated) == "signer"
    accept(signed(ROOM_A, delegated), delegated)


@pytest.mark.req("AUT-2")
def test_step_capability() -> None:
    """One key may hold several handles: an invocation is for one of them."""
    wider = handle_of(principal_chain())
    assert wider.audience == HANDLE.audience
    assert refused_at(signed(handle=wider)) == "capability"
    assert refused_at(signed(), wider) == "capability"
    assert refused_at(signed(cap=CapabilityId(bytes(32)))) == "capability"


@pytest.mark.req("AUT-2")
def test_step_service() -> None:
    wide = handle_of(principal_chain())
    # Room A's message sent on to room B.
    assert refused_at(signed(handle=wide), wide, service="worker") == "service"
    accept(signed(handle=wide, service="worker"), wide, service="worker")
    # A handle narrowed to one room, used at another.
    assert refused_at(signed(service="worker"), service="worker") == "service"
    # Narrowed twice to different rooms: nobody accepts it.
    neither = handle_of(turn_chain("assembler", ServiceCaveat(names=("worker",))))
    for room in ("assembler", "worker"):
        assert refused_at(signed(handle=neither, service=room), neither, service=room) == "service"


@pytest.mark.req("AUT-2")
def test_step_operation() -> None:
    assert refused_at(signed(op="read")) == "operation"
    assert refused_at(signed(), op="read") == "operation"
    assert refused_at(signed(op="fly"), op="fly") == "operation"
    narrowed = handle_of(turn_chain("assembler", OperationCaveat(names=("read",))))
    assert refused_at(signed(handle=narrowed), narrowed) == "operation"
    accept(signed(handle=narrowed, op="read"), narrowed, op="read")


@pytest.mark.req("AUT-2")
def test_step_right() -> None:
    assert refused_at(signed(op="erase"), op="erase") == "right"
    reader = handle_of(turn_chain("assembler", rights=(Right.READ,)))
    assert refused_at(signed(handle=reader), reader) == "right"
    accept(signed(handle=reader, op="read"), reader, op="read")


@pytest.mark.req("AUT-2")
def test_step_arguments() -> None:
    assert refused_at(signed(), args=ARGS + b"!") == "arguments"
    assert refused_at(signed(), args=b"") == "arguments"
    assert refused_at(signed(args=b"other")) == "arguments"


@pytest.mark.req("AUT-2")
def test_step_request() -> None:
    bound = handle_of(turn_chain("assembler", RequestCaveat(nonce=nonce(5))))
    accept(signed(handle=bound), bound)
    assert refused_at(signed(handle=bound, nonce=nonce(6)), bound) == "request"


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("side", [-1, 1])
def test_step_time(side: int) -> None:
    edge = NOW + side * INVOCATION_SKEW_NS_MAX
    accept(signed(ts_ns=edge))
    assert refused_at(signed(ts_ns=edge + side)) == "time"
    assert refused_at(signed(ts_ns=side * 2**62)) == "time"


@pytest.mark.req("AUT-2")
def test_step_start() -> None:
    assert refused_at(signed(), nonces=NonceWindow(NOW + 1)) == "start"
    accept(signed(), nonces=NonceWindow(NOW))


@pytest.mark.req("AUT-2")
def test_step_nonce() -> None:
    nonces = NonceWindow(0)
    accept(signed(), nonces=nonces)
    assert refused_at(signed(), nonces=nonces) == "nonce"
    assert refused_at(signed(op="read"), op="read", nonces=nonces) == "nonce"
    accept(signed(nonce=nonce(6)), nonces=nonces)


def test_a_refused_invocation_uses_up_no_nonce() -> None:
    nonces = NonceWindow(0)
    assert refused_at(signed(), args=b"other", nonces=nonces) == "arguments"
    assert refused_at(signed(), now_ns=NOW + 10**12, nonces=nonces) == "time"
    accept(signed(), nonces=nonces)


def test_a_full_window_refuses() -> None:
    nonces = NonceWindow(0, nonces_max=1)
    accept(signed(), nonces=nonces)
    with pytest.raises(Unavailable):
        accept(signed(nonce=nonce(6)), nonces=nonces)


@pytest.mark.req("AUT-2")
def test_every_changed_byte_is_refused() -> None:
    whole = signed()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 8)
        assert refused_at(bytes(changed)) in ("decode", "signer")


@pytest.mark.req("AUT-2")
@given(
    st.sampled_from(("assembler", "worker")),
    st.sampled_from(("assemble", "read", "erase")),
    st.binary(max_size=8),
    st.sampled_from((PRINCIPAL, ROOM_B)),
    st.binary(max_size=8),
)
def test_it_is_accepted_only_where_everything_agrees(
    service: str, op: str, args: bytes, signer: Signer, sent: bytes
) -> None:
    invocation = signed(signer, service=service, op=op, args=args)
    agrees = service == "assembler" and op != "erase" and signer is PRINCIPAL and args == sent
    if agrees:
        accept(invocation, op=op, args=sent)
    else:
        refused_at(invocation, op=op, args=sent)


def test_the_record_has_its_rules() -> None:
    sound = accept(signed())
    with pytest.raises(RecordError, match="16 bytes"):
        msgspec.structs.replace(sound, nonce=b"")
    with pytest.raises(RecordError, match="not a name"):
        msgspec.structs.replace(sound, service="a//b")


def test_the_largest_invocation_fits() -> None:
    name = "x" * 255
    wide = handle_of(principal_chain())
    whole = signed(handle=wide, service=name, op=name, ts_ns=NOW)
    assert len(whole) <= INVOCATION_BYTES_MAX
    accept(whole, wide, service=name, op=name, op_to_right={name: Right.READ})
