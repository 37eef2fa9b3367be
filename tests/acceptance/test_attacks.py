"""Every attack on a handle, one test each, refused by its own error (AUT-1, AUT-2, AUT-4).

Mallory is a principal of the same installation, holds a handle of her own, sees every message that
alice sends, and may build any bytes. Each attack is one message to a room that would give alice her
block. It is refused with the error and the step that are named beside it, gives nothing away, and
is on the authority's record by that step. The controls are the honest messages that the attacks are
made from: these are answered.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nacl import bindings

import protocol
from actors.authority.audit import AUDIT
from actors.ropes.room import RopesRoom
from actors.runtime.marks import TableMark
from protocol import cbor
from protocol.capability import CAPABILITY_CONTEXT, attenuate, decode_link
from protocol.errors import HuginnError, NotVisible
from protocol.messages.assembler import Assembled
from protocol.messages.authority import Revoke, Revoked
from protocol.messages.erasure import ErasureRow, RequestErasure
from protocol.messages.ropes import Objects
from protocol.resource import Right
from protocol.signing import Signer, pack_signed
from tests.attacks import ATTACKS, CAPABILITY, INVOCATION, SECRET, Den, made_den
from tests.block_samples import user
from tests.chains import forged
from tests.rooms import SECOND, assemble, opened


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
    await den.operator.caller.ask("authority", "revoke", ask, Revoked, administer=True)


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


@pytest.mark.req("AUT-2")
async def test_a_deputy_is_not_lent_anothers_authority(den: Den) -> None:
    """The assembler writes for whoever asks it, under what the message brings: mallory brings what
    alice gave it for herself, as it is, and with a link of her own behind it."""
    house, spy = den.house, den.mallory
    assembler = house.room_to_key["assembler"]
    stolen = den.alice.chain("ropes", audience=assembler)
    link = decode_link(den.mallory.chain("ropes", audience=assembler)[-1])
    own = forged(
        pack_signed(spy.signer, CAPABILITY_CONTEXT, link.payload),
        spy.signer,
        parent=decode_link(stolen[-1]).id,
    )
    # In her own namespace, so that the assembler itself has no reason to refuse.
    ask = assemble([user("mallory was here")], namespace="team/ab")
    for chain, kind, step in [
        (stolen, INVOCATION, "delegation"),
        ((*stolen, own), CAPABILITY, "alignment"),
        ((*stolen[:-1], own), CAPABILITY, "alignment"),
    ]:
        message = spy.message("assembler", "assemble", ask, delegations={"ropes": chain})
        with pytest.raises(HuginnError) as caught:
            opened(await house.post.call("assembler", message), Assembled)
        assert (type(caught.value), caught.value.details.get("step")) == (kind, step)
        assert house.store.list_members("team/ab") == []
    # Control: under her own delegation it writes for her.
    mine = spy.chain("ropes", audience=assembler)
    message = spy.message("assembler", "assemble", ask, delegations={"ropes": mine})
    assert opened(await house.post.call("assembler", message), Assembled).context is not None


@pytest.mark.req("AUT-2", "AUT-8")
@pytest.mark.parametrize("hand", ["mallory", "gateway"])
@pytest.mark.parametrize(("target", "name"), [("principal", "alice"), ("domain", "alice")])
async def test_who_was_given_erase_does_not_erase_its_giver(
    den: Den, hand: str, target: Any, name: str
) -> None:
    """Alice lets mallory erase what lies in her namespace, under mallory's own key, or as a handle
    that the gateway signs for whoever shows it. That is not to revoke and erase alice."""
    house = den.house
    signer = den.mallory.signer if hand == "mallory" else house.signers[hand]
    given = attenuate(
        den.alice.row.chain,
        den.alice.signer,
        audience=signer.public,
        nonce=b"e" * 16,
        rights=[Right.ERASE],
    )
    turn = attenuate(given, signer, audience=signer.public, nonce=b"t" * 16)
    ask = RequestErasure(target=target, name=name)
    for chain in (given, turn):
        message = den.mallory.message(
            "authority", "request_erasure", ask, chain=chain, signer=signer
        )
        with pytest.raises(NotVisible) as caught:
            opened(await house.post.call("authority", message), ErasureRow)
        assert caught.value.message == f"no such {target} in this view"
    assert opened(await den.sent(den.message()), Objects).objects
    rows = decode_link(den.alice.row.chain[0]).id.digest
    assert house.tables.keyed("revoked").get(rows) is None
    # Control: alice herself may.
    row = await den.alice.caller.ask("authority", "request_erasure", ask, ErasureRow)
    assert (row.target, row.name) == (target, name)
    assert house.tables.keyed("revoked").get(rows) is not None


def refusing_steps() -> set[tuple[str, str]]:
    """Every error with which the language refuses a handle or its use, and its step, as they stand
    in the source."""
    found: set[tuple[str, str]] = set()
    for path in sorted(Path(protocol.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in (CAPABILITY.__name__, INVOCATION.__name__):
                step = node.args[0]
                assert isinstance(step, ast.Constant), f"{path.name}: {ast.unparse(node)}"
                found.add((node.func.id, str(step.value)))
    return found


def test_every_step_of_a_chain_and_of_an_invocation_is_attacked() -> None:
    """A step that is new in the source has an attack here; those of time and place are above."""
    attacked = {(kind.__name__, step) for _, kind, step in ATTACKS.values()}
    attacked |= {
        (INVOCATION.__name__, "nonce"),
        (INVOCATION.__name__, "start"),
        (CAPABILITY.__name__, "revocation"),
    }
    steps = refusing_steps()
    assert len(steps) > 25
    assert attacked == steps
