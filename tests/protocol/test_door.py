"""The door: a whole turn through two rooms, and every way around it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.capability import attenuate
from protocol.caveats import ServiceCaveat
from protocol.door import Admitted, Door
from protocol.envelope import Envelope, Order, decode_envelope, seal
from protocol.errors import AuthorityError, CapabilityError, InvocationError
from protocol.resource import Right
from protocol.signing import Signer
from tests.chains import (
    ANCHORS,
    NOW,
    PRINCIPAL,
    ROOM_A,
    ROOM_B,
    SECOND,
    STRANGER,
    nobody,
    nonce,
    principal_chain,
    turn_chain,
)

OPS = {"assemble": Right.ASSEMBLE, "put": Right.WRITE}


def door(room: str, started_ns: int = NOW - SECOND) -> Door:
    return Door(room, OPS, ANCHORS, started_ns=started_ns)


def admit(at: Door, envelope: Envelope, **changes: Any) -> Admitted:
    return at.admit(envelope, **{"now_ns": NOW, "epoch": 1, "is_revoked": nobody, **changes})


def refused_at(at: Door, envelope: Envelope, **changes: Any) -> str:
    with pytest.raises(AuthorityError) as caught:
        admit(at, envelope, **changes)
    return caught.value.step


def delegation(
    room: str, audience: bytes = ROOM_A.public, holder: Signer = PRINCIPAL
) -> tuple[bytes, ...]:
    """What lets a room ask another for the same caller, during one turn."""
    return attenuate(
        principal_chain(audience=holder.public),
        holder,
        audience=audience,
        nonce=nonce(3),
        caveats=(ServiceCaveat(names=(room,)),),
        exp_ns=NOW + 60 * SECOND,
    )


def ask(**changes: Any) -> Envelope:
    fields: dict[str, Any] = {
        "chain": turn_chain("assembler"),
        "signer": PRINCIPAL,
        "room": "assembler",
        "op": "assemble",
        "body": b"body",
        "ts_ns": NOW,
        "nonce": nonce(7),
        "request_id": "req-1",
        "delegations": {"ropes": delegation("ropes")},
    }
    return decode_envelope(seal(**{**fields, **changes}))


@pytest.mark.req("AUT-1", "AUT-2")
def test_a_turn_through_two_rooms() -> None:
    came_in = ask()
    first = admit(door("assembler"), came_in)
    assert first.handle.principal == first.handle.audience == PRINCIPAL.public
    assert first.invocation.op == "assemble"
    assert came_in.delegations is not None
    onward = ask(
        chain=came_in.delegations["ropes"],
        signer=ROOM_A,
        room="ropes",
        op="put",
        delegations=None,
    )
    second = admit(door("ropes"), onward)
    assert second.handle.principal == PRINCIPAL.public
    assert second.handle.audience == ROOM_A.public
    assert second.handle.domain == first.handle.domain == "alice"


@pytest.mark.req("AUT-2")
def test_replay_is_refused_also_after_a_restart() -> None:
    at = door("assembler")
    admit(at, ask())
    assert refused_at(at, ask()) == "nonce"
    assert refused_at(door("assembler", started_ns=at.nonces.high_ns + 1), ask()) == "start"
    admit(at, ask(nonce=nonce(8)))


@pytest.mark.req("AUT-2")
def test_a_message_for_one_room_is_refused_by_another() -> None:
    assert refused_at(door("worker"), ask()) == "service"
    rerouted = msgspec.structs.replace(ask(), room="worker")
    assert refused_at(door("worker"), rerouted) == "service"
    assert refused_at(door("assembler"), rerouted) == "service"
    unnarrowed = ask(chain=principal_chain())
    admit(door("assembler"), unnarrowed)
    rerouted = msgspec.structs.replace(unnarrowed, room="worker")
    assert refused_at(door("worker"), rerouted) == "service"


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ("operation", {"op": "put"}),
        ("arguments", {"body": b"other"}),
        ("arguments", {"request_id": "req-2"}),
        ("arguments", {"delegations": None}),
        ("arguments", {"order": Order(turn=b"t", sequence=0)}),
        ("arguments", {"delegations": {"ropes": delegation("worker")}}),
        ("capability", {"chain": principal_chain()}),
        ("anchor", {"chain": turn_chain("assembler")[1:]}),
        ("length", {"chain": ()}),
        ("decode", {"invocation": b""}),
    ],
)
def test_a_message_changed_on_the_way_is_refused(step: str, changes: dict[str, Any]) -> None:
    assert refused_at(door("assembler"), msgspec.structs.replace(ask(), **changes)) == step


@pytest.mark.req("AUT-2")
def test_another_callers_delegation_is_refused() -> None:
    """The confused deputy: a delegation that was issued to this room, but for someone else."""
    stolen = delegation("ropes", holder=ROOM_B)
    assert refused_at(door("assembler"), ask(delegations={"ropes": stolen})) == "delegation"
    for unreadable in ((), (b"",), (stolen[0],)):
        envelope = ask(delegations={"ropes": unreadable})
        assert refused_at(door("assembler"), envelope) == "delegation"


@pytest.mark.req("AUT-2")
def test_a_room_cannot_use_what_was_delegated_to_another() -> None:
    for thief in (ROOM_B, STRANGER):
        stolen = ask(chain=delegation("ropes"), signer=thief, room="ropes", op="put")
        with pytest.raises(InvocationError):
            admit(door("ropes"), stolen)
    # Nor at a room that it was not delegated for.
    astray = ask(
        chain=delegation("ropes"), signer=ROOM_A, room="worker", op="put", delegations=None
    )
    assert refused_at(door("worker"), astray) == "service"


@pytest.mark.req("AUT-2")
def test_a_forged_delegation_goes_no_further_than_the_next_room() -> None:
    """A room forwards delegations without verifying them whole; the room it asks does."""
    *above, last = delegation("ropes")
    forged = (*above, last[:-1] + bytes([last[-1] ^ 1]))
    came_in = ask(delegations={"ropes": forged})
    admit(door("assembler"), came_in)
    onward = ask(chain=forged, signer=ROOM_A, room="ropes", op="put", delegations=None)
    assert refused_at(door("ropes"), onward) == "signature"


def test_revocation_takes_effect_for_the_next_message() -> None:
    at = door("assembler")
    admit(at, ask())
    with pytest.raises(CapabilityError) as caught:
        admit(at, ask(nonce=nonce(8)), epoch=2, is_revoked=lambda _i, c: c.aud == PRINCIPAL.public)
    assert caught.value.step == "revocation"
    # A refused message used up no nonce.
    admit(at, ask(nonce=nonce(8)), epoch=3)


def test_an_operation_needs_its_right() -> None:
    reader = turn_chain("assembler", rights=(Right.READ,))
    assert refused_at(door("assembler"), ask(chain=reader)) == "right"
