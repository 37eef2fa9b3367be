"""Attacks on handles: one message each, made by a principal who has one of her own.

Mallory sees every message that alice sends, and may build any bytes. Beside each attack stands the
error and the step that have to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from protocol import cbor
from protocol.capability import CAPABILITY_CONTEXT, attenuate, decode_link
from protocol.caveats import DomainCaveat, OperationCaveat, RequestCaveat, ServiceCaveat
from protocol.envelope import decode_envelope, encode_envelope
from protocol.errors import CapabilityError, HuginnError, InvocationError
from protocol.invocation import INVOCATION_CONTEXT
from protocol.limits import INVOCATION_BYTES_MAX
from protocol.messages.ropes import Commit, Committed, GetObjects, NewBlock, Publish
from protocol.record import encode_record, object_id
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import pack_signed, unpack_signed
from tests.block_samples import user
from tests.chains import forged
from tests.rooms import SECOND, Installation, Principal

CAPABILITY, INVOCATION = CapabilityError, InvocationError
SECRET = "the well lies under the second root"
Chain = tuple[bytes, ...]


@dataclass
class Den:
    """An installation with alice, who keeps a secret in `team/a`, and mallory in `team/ab`."""

    house: Installation
    alice: Principal
    mallory: Principal
    operator: Principal
    ask: GetObjects

    def message(self, chain: Chain | None = None, **changes: Any) -> bytes:
        """Alice's honest message, or what becomes of it."""
        fields = changes if chain is None else {"chain": chain, **changes}
        return self.alice.message("ropes", "get", self.ask, **fields)

    def hers(self, chain: Chain, **changes: Any) -> bytes:
        """Mallory's message with `chain`, signed with her own key."""
        return self.mallory.message("ropes", "get", self.ask, chain=chain, **changes)

    async def sent(self, message: bytes) -> bytes:
        return await self.house.post.call("ropes", message)

    @property
    def handle(self) -> Chain:
        """Three links: the root's grant to alice, a turn of hers, and one more under that."""
        turn = self.alice.chain("ropes")
        return attenuate(
            turn, self.alice.signer, audience=self.alice.signer.public, nonce=b"3" * 16
        )

    def leaf(self, **changes: Any) -> Chain:
        """`handle` with its leaf changed, and signed by its true issuer without any check."""
        *above, last = self.handle
        return (*above, forged(last, self.alice.signer, **changes))

    def hers_leaf(self, **changes: Any) -> Chain:
        """A link that mallory makes under her own handle, without any check."""
        *above, last = self.mallory.chain("ropes")
        return (*above, forged(last, self.mallory.signer, **changes))


async def made_den() -> Den:
    """A den in which alice has kept her secret."""
    house = await Installation(audited=True).start()
    alice = await house.enroll("alice", namespace="team/a")
    mallory = await house.enroll("mallory", namespace="team/ab")
    operator = await house.enroll("operator", administers=True)
    block, text = user(SECRET)
    commit = Commit(
        namespace="team/a",
        keep=0,
        blocks=[NewBlock(block=block, content=text.encode())],
        entries=[],
    )
    await alice.caller.ask("ropes", "commit", commit, Committed)
    return Den(house, alice, mallory, operator, GetObjects(ids=[str(object_id(block))]))


def altered(message: bytes, **fields: object) -> bytes:
    return encode_envelope(msgspec.structs.replace(decode_envelope(message), **fields))


def unknown_caveat(den: Den) -> bytes:
    """Mallory's leaf with a caveat of a type that nobody knows, in place of one that binds her."""
    *above, last = den.mallory.chain("ropes")
    payload = cbor.decode(decode_link(last).payload)
    assert isinstance(payload, dict)
    payload["caveats"] = [{"type": "moonphase", "name": "full"}]
    link = pack_signed(den.mallory.signer, CAPABILITY_CONTEXT, cbor.encode(payload))
    return altered(den.hers(den.mallory.chain("ropes")), chain=(*above, link))


def longer(den: Den) -> Chain:
    """A link of mallory's that ends after her handle."""
    ends_ns = decode_link(den.mallory.row.chain[0]).capability.exp_ns
    return den.hers_leaf(nbf_ns=den.house.clock.wall_ns(), exp_ns=ends_ns + 1)


def nine_links(den: Den) -> Chain:
    chain = den.mallory.chain("ropes")
    while len(chain) < 8:
        own = den.mallory.signer
        chain = attenuate(chain, own, audience=own.public, nonce=bytes([len(chain)]) * 16)
    return (*chain, chain[-1])


def spliced_under_another_parent(den: Den) -> Chain:
    """Alice's last link under another of her turns: the keys fit, the parent does not."""
    return (*den.alice.chain("ropes"), den.handle[-1])


def resource(path: str) -> Resource:
    return Resource(kind=ResourceKind.NAMESPACE, name=path)


def narrow(den: Den, **caveats: Any) -> Chain:
    """Alice's turn with more caveats, honestly made."""
    return den.alice.chain("ropes", **caveats)


def stolen_delegation(den: Den) -> bytes:
    """What alice once gave the assembler for ropes, enclosed by mallory for her own errand."""
    chain = den.alice.chain("ropes", audience=den.house.room_to_key["assembler"])
    return den.hers(den.mallory.chain("ropes"), delegations={"ropes": chain})


def without_caveats(den: Den) -> Chain:
    return den.hers_leaf(caveats=())


def too_many_fields(den: Den) -> bytes:
    """An invocation of mallory's that says besides whom it is for, well signed."""
    message = decode_envelope(den.hers(den.mallory.chain("ropes")))
    payload = cbor.decode(unpack_signed(message.invocation, size_max=INVOCATION_BYTES_MAX)[0])
    assert isinstance(payload, dict)
    payload["principal"] = den.alice.signer.public
    signed = pack_signed(den.mallory.signer, INVOCATION_CONTEXT, cbor.encode(payload))
    return encode_envelope(msgspec.structs.replace(message, invocation=signed))


def part_of_the_house(den: Den) -> bytes:
    """Mallory administers `team/ab`, by the operator's word, and would publish for everybody."""
    assert den.operator.row.admin_chain is not None
    chain = attenuate(
        den.operator.row.admin_chain,
        den.operator.signer,
        audience=den.mallory.signer.public,
        nonce=b"p" * 16,
        resource=resource("team/ab"),
    )
    block, text = user("mallory's word")
    ask = Publish(block=block, content=text.encode())
    return den.mallory.message("ropes", "publish", ask, chain=chain)


Attack = Callable[[Den], bytes]
ATTACKS: dict[str, tuple[Attack, type[HuginnError], str]] = {
    # -- chains that nobody gave --------------------------------------------------------------
    "forged: her own root": (
        lambda d: d.hers(
            (forged(d.mallory.row.chain[0], d.mallory.signer, iss=d.mallory.signer.public),)
        ),
        CAPABILITY,
        "anchor",
    ),
    "forged: the anchor's name without its key": (
        lambda d: d.hers((forged(d.mallory.row.chain[0], d.mallory.signer, res=ALL),)),
        CAPABILITY,
        "signature",
    ),
    "forged: another root authority named in the middle": (
        lambda d: d.hers(d.hers_leaf(sub=d.mallory.signer.public)),
        CAPABILITY,
        "subject",
    ),
    "forged: a key of small order as audience": (
        lambda d: d.message(d.leaf(aud=bytes([1]) + bytes(31))),
        CAPABILITY,
        "key",
    ),
    "truncated: without its root": (lambda d: d.message(d.handle[1:]), CAPABILITY, "anchor"),
    "truncated: without its leaf": (
        lambda d: altered(d.message(d.handle), chain=d.handle[:-1]),
        INVOCATION,
        "capability",
    ),
    "truncated: a link cut short": (
        lambda d: altered(d.message(d.handle), chain=(*d.handle[:-1], d.handle[-1][:-1])),
        CAPABILITY,
        "decode",
    ),
    "truncated: no chain": (lambda d: altered(d.message(), chain=()), CAPABILITY, "length"),
    "re-signed: alice's leaf by mallory": (
        lambda d: d.message((*d.handle[:-1], forged(d.handle[-1], d.mallory.signer))),
        CAPABILITY,
        "signature",
    ),
    "re-signed: for her own key": (
        lambda d: d.hers(
            (*d.handle[:-1], forged(d.handle[-1], d.mallory.signer, aud=d.mallory.signer.public))
        ),
        CAPABILITY,
        "signature",
    ),
    "re-ordered: the root last": (
        lambda d: d.message((d.handle[1], d.handle[0], d.handle[2])),
        CAPABILITY,
        "anchor",
    ),
    "re-ordered: two links exchanged": (
        lambda d: d.message((d.handle[0], d.handle[2], d.handle[1])),
        CAPABILITY,
        "parent",
    ),
    "spliced: alice's leaf under mallory's grant": (
        lambda d: d.message((d.mallory.row.chain[0], *d.handle[1:])),
        CAPABILITY,
        "alignment",
    ),
    "spliced: mallory's leaf under alice's grant": (
        lambda d: d.hers((d.alice.row.chain[0], d.mallory.chain("ropes")[-1])),
        CAPABILITY,
        "alignment",
    ),
    "spliced: under another parent of the same keys": (
        lambda d: d.message(spliced_under_another_parent(d)),
        CAPABILITY,
        "parent",
    ),
    "over-long: nine links": (lambda d: d.hers(nine_links(d)), CAPABILITY, "length"),
    "over-long: more bytes than any chain has": (
        lambda d: altered(d.message(), chain=(bytes(4097),) * 8),
        CAPABILITY,
        "size",
    ),
    # -- wider than its parent ----------------------------------------------------------------
    "widened: rights": (
        lambda d: d.hers(d.hers_leaf(rights=(Right.GRANT, Right.READ))),
        CAPABILITY,
        "attenuation.rights",
    ),
    "widened: the parent of its namespace": (
        lambda d: d.hers(d.hers_leaf(res=resource("team"))),
        CAPABILITY,
        "attenuation.resource",
    ),
    "widened: team/a under team/ab": (
        lambda d: d.hers(d.hers_leaf(res=resource("team/a"))),
        CAPABILITY,
        "attenuation.resource",
    ),
    "widened: everything": (
        lambda d: d.hers(d.hers_leaf(res=ALL)),
        CAPABILITY,
        "attenuation.resource",
    ),
    "widened: a longer life": (lambda d: d.hers(longer(d)), CAPABILITY, "attenuation.times"),
    "widened: an earlier beginning": (
        lambda d: d.hers(d.hers_leaf(nbf_ns=d.house.clock.wall_ns() - 2 * SECOND)),
        CAPABILITY,
        "attenuation.times",
    ),
    "widened: depth": (
        lambda d: d.hers(d.hers_leaf(depth_left=7)),
        CAPABILITY,
        "attenuation.depth",
    ),
    "widened: a caveat left out": (
        lambda d: d.hers(without_caveats(d)),
        CAPABILITY,
        "attenuation.caveats",
    ),
    "widened: alice's domain": (
        lambda d: d.hers(d.hers_leaf(caveats=(DomainCaveat(name="alice"),))),
        CAPABILITY,
        "attenuation.caveats",
    ),
    "an unknown caveat": (unknown_caveat, CAPABILITY, "decode"),
    # -- a handle of another, for another, for something else ---------------------------------
    "wrong audience: alice's handle in mallory's hand": (
        lambda d: d.hers(d.handle),
        INVOCATION,
        "signer",
    ),
    "wrong service: a handle for the assembler": (
        lambda d: d.message(d.alice.chain("assembler")),
        INVOCATION,
        "service",
    ),
    "wrong service: sent for the assembler, delivered here": (
        lambda d: altered(d.alice.message("assembler", "get", d.ask, chain=d.handle), room="ropes"),
        INVOCATION,
        "service",
    ),
    "wrong operation: signed for another": (
        lambda d: altered(d.message(), op="tree"),
        INVOCATION,
        "operation",
    ),
    "wrong operation: a handle for another": (
        lambda d: d.message(
            narrow(d, caveats=[ServiceCaveat(names=("ropes",)), OperationCaveat(names=("tree",))])
        ),
        INVOCATION,
        "operation",
    ),
    "no right": (lambda d: d.message(narrow(d, rights=[Right.WRITE])), INVOCATION, "right"),
    "wrong arguments": (
        lambda d: altered(
            d.message(), body=encode_record(GetObjects(ids=[*d.ask.ids, *d.ask.ids]))
        ),
        INVOCATION,
        "arguments",
    ),
    "another request's nonce": (
        lambda d: d.message(
            narrow(d, caveats=[ServiceCaveat(names=("ropes",)), RequestCaveat(nonce=b"r" * 16)])
        ),
        INVOCATION,
        "request",
    ),
    "too old": (
        lambda d: d.message(ts_ns=d.house.clock.wall_ns() - 31 * SECOND),
        INVOCATION,
        "time",
    ),
    "a handle that ended": (
        lambda d: d.message(narrow(d, exp_ns=d.house.clock.wall_ns())),
        CAPABILITY,
        "time",
    ),
    "malformed: an invocation cut short": (
        lambda d: altered(d.message(), invocation=decode_envelope(d.message()).invocation[:-1]),
        INVOCATION,
        "decode",
    ),
    "malformed: an invocation with a field too many": (too_many_fields, INVOCATION, "decode"),
    "out of its scope: a right, but not on that": (part_of_the_house, CAPABILITY, "scope"),
    "a confused deputy": (stolen_delegation, INVOCATION, "delegation"),
    "a confused deputy: with a delegation that says nothing": (
        lambda d: d.hers(d.mallory.chain("ropes"), delegations={"ropes": ()}),
        INVOCATION,
        "delegation",
    ),
}
