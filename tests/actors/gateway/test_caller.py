"""A caller asks with handles that hold for one room, one minute, and no more than is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from actors.gateway.caller import Caller, Ports
from actors.gateway.keys import KeyHolder, KeyRow
from protocol.capability import decode_link, issue
from protocol.caveats import DomainCaveat, ServiceCaveat
from protocol.envelope import Envelope, decode_envelope, seal_error, seal_reply
from protocol.errors import AuthorityError, FaultError, NotVisible
from protocol.limits import TURN_HANDLE_LIFETIME_NS
from protocol.messages import Empty
from protocol.messages.ropes import Objects
from protocol.record import encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import Signer

NOW_NS = 1_800_000_000_000_000_000
YEAR_NS = 365 * 24 * 3600 * 10**9
ROOT, ADA, ASSEMBLER = (Signer(bytes([n]) * 32) for n in (1, 2, 3))


class Hand:
    """A clock that stands, and randomness that counts."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS
        self.drawn = 0

    def wall_ns(self) -> int:
        return self.now_ns

    def steady_ns(self) -> int:
        return self.now_ns

    def draw(self, size_bytes: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(size_bytes, "big")


class Post:
    """Keeps what is sent, and answers what it was told to."""

    def __init__(self, *replies: bytes) -> None:
        self.sent: list[Envelope] = []
        self.replies = list(replies)
        self.closed = 0

    async def call(self, room: str, message: bytes) -> bytes:
        self.sent.append(decode_envelope(message))
        return self.replies.pop(0)

    async def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        self.sent.append(decode_envelope(message))
        try:
            for reply in self.replies:
                yield reply
        finally:
            self.closed += 1


def caller_of(
    post: Post, hand: Hand, *, rights: tuple[Right, ...] = tuple(Right), admin: bool = False
) -> Caller:
    def grant(
        resource: Resource, held: tuple[Right, ...], caveats: list[DomainCaveat]
    ) -> list[bytes]:
        return list(
            issue(
                ROOT,
                audience=ADA.public,
                resource=resource,
                rights=held,
                caveats=caveats,
                nbf_ns=NOW_NS - 1,
                exp_ns=NOW_NS + YEAR_NS,
                nonce=bytes(16),
            )
        )

    path = Resource(kind=ResourceKind.NAMESPACE, name="ada")
    row = KeyRow(
        v=1,
        principal="ada",
        chain=grant(path, rights, [DomainCaveat(name="ada")]),
        admin_chain=grant(ALL, (Right.GRANT,), []) if admin else None,
        namespace="ada",
        domain="ada",
        created_s=1,
    )
    ports = Ports(hand, hand, post, {"assembler": ASSEMBLER.public})
    return Caller(KeyHolder(row, ADA), ports, "req-1")


ANSWER = Objects(objects=[])
DONE = seal_reply(encode_record(ANSWER))


@pytest.mark.req("AUT-2")
async def test_a_message_carries_a_handle_for_its_room_alone() -> None:
    post = Post(DONE)
    made = await caller_of(post, Hand()).ask("ropes", "get", Empty(), Objects)
    assert made == ANSWER
    (envelope,) = post.sent
    leaf = decode_link(envelope.chain[-1]).capability
    assert leaf.aud == ADA.public
    assert ServiceCaveat(names=("ropes",)) in leaf.caveats
    assert DomainCaveat(name="ada") in leaf.caveats
    assert leaf.exp_ns == NOW_NS + TURN_HANDLE_LIFETIME_NS
    assert envelope.request_id == "req-1"
    assert envelope.delegations is None


@pytest.mark.req("AUT-2")
async def test_a_delegation_is_for_one_errand_of_one_room() -> None:
    post = Post(DONE)
    await caller_of(post, Hand()).ask("assembler", "x", Empty(), Objects, delegate=("ropes",))
    delegations = post.sent[0].delegations
    assert delegations is not None
    leaf = decode_link(delegations["ropes"][-1]).capability
    assert leaf.iss == ADA.public
    assert leaf.aud == ASSEMBLER.public
    assert leaf.rights == (Right.READ, Right.WRITE)
    assert ServiceCaveat(names=("ropes",)) in leaf.caveats


async def test_handles_are_kept_within_a_request_and_renewed_before_they_end() -> None:
    post, hand = Post(DONE, DONE, DONE), Hand()
    caller = caller_of(post, hand)
    await caller.ask("ropes", "get", Empty(), Objects)
    await caller.ask("ropes", "get", Empty(), Objects)
    hand.now_ns += TURN_HANDLE_LIFETIME_NS // 2
    await caller.ask("ropes", "get", Empty(), Objects)
    first, second, third = (envelope.chain[-1] for envelope in post.sent)
    assert first == second
    assert third != first
    # The handle is kept, the invocation never is.
    assert post.sent[0].invocation != post.sent[1].invocation


async def test_administering_takes_the_other_handle() -> None:
    post = Post(DONE)
    await caller_of(post, Hand(), admin=True).ask(
        "authority", "enroll", Empty(), Objects, administer=True
    )
    assert decode_link(post.sent[0].chain[-1]).capability.rights == (Right.GRANT,)
    with pytest.raises(AuthorityError):
        await caller_of(Post(DONE), Hand()).ask(
            "authority", "enroll", Empty(), Objects, administer=True
        )


async def test_a_key_that_may_do_neither_delegates_nothing() -> None:
    caller = caller_of(Post(DONE), Hand(), rights=(Right.GENERATE,))
    with pytest.raises(AuthorityError):
        await caller.ask("assembler", "x", Empty(), Objects, delegate=("ropes",))


async def test_a_rooms_error_comes_back_as_itself_and_nonsense_as_our_fault() -> None:
    post = Post(seal_error(NotVisible("no")), seal_reply(b"\xf6"))
    caller = caller_of(post, Hand())
    with pytest.raises(NotVisible):
        await caller.ask("ropes", "get", Empty(), Objects)
    with pytest.raises(FaultError):
        await caller.ask("ropes", "get", Empty(), Objects)


async def test_closing_a_stream_closes_the_rooms() -> None:
    post = Post(DONE, DONE)
    items = caller_of(post, Hand()).stream("worker", "generate", Empty(), Objects)
    assert await anext(items) == ANSWER
    assert post.closed == 0
    await items.aclose()
    assert post.closed == 1


def test_rights_are_those_of_the_principals_own_handle() -> None:
    caller = caller_of(Post(), Hand(), rights=(Right.READ,), admin=True)
    assert caller.has(Right.READ)
    assert not caller.has(Right.GRANT)
    assert caller.principal == caller.namespace == "ada"
