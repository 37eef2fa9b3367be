"""Every attack on a handle, one test each, refused by its own error (AUT-1, AUT-2, AUT-4).

Mallory is a principal of the same installation, holds a handle of her own, sees every message that
alice sends, and may build any bytes. Each attack is one message to a room that would give alice her
block. It is refused with the error and the step that are named beside it, gives nothing away, and
is on the authority's record by that step. The controls are the honest messages that the attacks are
made from: these are answered.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from nacl import bindings

from actors.authority.audit import AUDIT
from actors.ropes.room import RopesRoom
from actors.runtime.marks import TableMark
from protocol import cbor
from protocol.capability import CAPABILITY_CONTEXT, decode_link
from protocol.errors import HuginnError
from protocol.messages import Empty
from protocol.messages.authority import Revoke
from protocol.messages.ropes import Objects
from protocol.signing import Signer
from tests.attacks import ATTACKS, CAPABILITY, INVOCATION, SECRET, Den, made_den
from tests.rooms import SECOND, opened


@pytest.fixture
async def den() -> Den:
    return await made_den()


def other_signature(signer: Signer, message: bytes) -> bytes:
    """A second valid signature of `signer` over `message`: another nonce than RFC 8032 takes."""
    digest = hashlib.sha512(bytes(signer._key)).digest()
    scalar = bytearray(digest[:32])
    scalar[0] &= 248
    scalar[31] = (scalar[31] & 127) | 64
    secret = bindings.crypto_core_ed25519_scalar_reduce(bytes(scalar) + bytes(32))
    drawn = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"other" + message).digest())
    point = bindings.crypto_scalarmult_ed25519_base_noclamp(drawn)
    challenge = bindings.crypto_core_ed25519_scalar_reduce(
        hashlib.sha512(point + signer.public + message).digest()
    )
    product = bindings.crypto_core_ed25519_scalar_mul(challenge, secret)
    return bytes(point + bindings.crypto_core_ed25519_scalar_add(drawn, product))


def on_record(den: Den) -> list[str]:
    """The steps of all refusals in the audit log, whose chain holds."""
    den.house.tables.log(AUDIT).verify()
    entries: list[Any] = [cbor.decode(each.body) for each in den.house.tables.log(AUDIT).entries()]
    refused = [each for each in entries if each["act"] == "refuse"]
    return [each["step"] for entry in refused for each in entry["refusals"]]


async def refused(den: Den, message: bytes, kind: type[HuginnError], step: str) -> None:
    reply = await den.sent(message)
    with pytest.raises(HuginnError) as caught:
        opened(reply, Objects)
    assert (type(caught.value), caught.value.details.get("step")) == (kind, step)
    assert SECRET.encode() not in reply
    await den.house.post.rooms["ropes"].refusals.settle()
    assert on_record(den)[-1] == step


@pytest.mark.req("AUT-1", "AUT-2", "AUT-8")
@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_refused_by_its_own_error(den: Den, name: str) -> None:
    make, kind, step = ATTACKS[name]
    # In the middle of an installation's life: times before it are not before its start.
    den.house.clock.now_ns += SECOND
    await refused(den, make(den), kind, step)


async def test_control_the_honest_messages_are_answered(den: Den) -> None:
    for chain in (den.handle, den.alice.chain("ropes")):
        found = opened(await den.sent(den.message(chain)), Objects)
        assert [each.id for each in found.objects] == den.ask.ids
    assert on_record(den) == []


@pytest.mark.req("AUT-2")
async def test_replay(den: Den) -> None:
    message = den.message()
    opened(await den.sent(message), Objects)
    await refused(den, message, INVOCATION, "nonce")


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("ahead_s", [0, 20])
async def test_replay_after_a_restart(den: Den, ahead_s: int) -> None:
    """Also of what was signed by a clock that is ahead of the room's."""
    house = den.house
    marked = replace(house.world("ropes"), mark=TableMark(house.tables))
    await house.add(RopesRoom(marked, house.store))
    message = den.message(ts_ns=house.clock.wall_ns() + ahead_s * SECOND)
    opened(await den.sent(message), Objects)
    house.clock.now_ns += SECOND
    house.post.rooms["ropes"] = RopesRoom(marked, house.store)
    await refused(den, message, INVOCATION, "start")


async def revoke(den: Den, name: str) -> None:
    ask = Revoke(name=name)
    await den.operator.caller.ask("authority", "revoke", ask, Empty, administer=True)


@pytest.mark.req("AUT-4")
async def test_a_revoked_ancestor(den: Den) -> None:
    handle = den.handle
    opened(await den.sent(den.message(handle)), Objects)
    await revoke(den, "alice")
    await refused(den, den.message(handle), CAPABILITY, "revocation")


@pytest.mark.req("AUT-4")
async def test_other_signature_bytes_of_a_revoked_handle(den: Den) -> None:
    """Another true signature of the anchor over the same payload is the same capability."""
    root, *below = den.handle
    payload = decode_link(root).payload
    signature = other_signature(den.house.root, CAPABILITY_CONTEXT + payload)
    again = cbor.encode([payload, signature])
    assert again != root
    handle = (again, *below)
    # Control: it is good while alice is.
    opened(await den.sent(den.message(handle)), Objects)
    await revoke(den, "alice")
    await refused(den, den.message(handle), CAPABILITY, "revocation")


def test_every_step_of_a_chain_and_of_an_invocation_is_attacked() -> None:
    """The steps as the modules that verify list them; those of time and place are above."""
    steps = {step for _, _, step in ATTACKS.values()} | {"nonce", "start", "revocation"}
    assert steps == {
        *("size", "decode", "length", "anchor", "signature", "key", "alignment", "subject"),
        *("parent", "attenuation.rights", "attenuation.resource", "attenuation.caveats"),
        *("attenuation.times", "attenuation.depth", "time", "revocation", "delegation", "signer"),
        *("capability", "service", "operation", "right", "arguments", "request", "start", "nonce"),
    }
