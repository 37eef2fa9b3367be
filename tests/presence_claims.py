"""Claims to what is public or somebody else's, each of which must be refused, whoever makes it.

What is public is what the operator published and nothing else: no caller says so of its own blocks,
no room but the one that keeps it changes it or announces it, nobody is enrolled there, commits
there or computes in its domain, and it is withdrawn block by block, never erased. A principal is
erased by itself, or by who may revoke it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from msgspec import structs

from actors.authority.principals import NAMESPACE_RIGHTS
from actors.gateway.keys import KeyRow
from protocol.blocks import Role
from protocol.capability import issue
from protocol.caveats import DomainCaveat
from protocol.errors import HuginnError
from protocol.messages import Empty
from protocol.messages.assembler import Segment
from protocol.messages.authority import Enrolled
from protocol.messages.erasure import Erase, ErasureRow, RequestErasure
from protocol.messages.ropes import Commit, Committed, Publication, Publish, Withdraw
from protocol.messages.worker import Cancel, Generate, Settle
from protocol.publication import PUBLIC, state_prefix
from protocol.record import object_id
from protocol.resource import ALL
from protocol.signing import NONCE_BYTES, Signer
from tests.events_rooms import said
from tests.presence_house import ALL_RIGHTS, House
from tests.presence_jobs import job_of, prompt_of, publish, stated
from tests.presence_messages import OTHER
from tests.presence_seen import Different, Seen
from tests.rooms import PROFILE, YEAR_NS, Principal, enrolment

WALL = said(Role.SYSTEM, "What hangs on the wall of the hall, for everybody to read.")
OWN = said(Role.USER, "What only the one who says it has ever said, and would have kept for all.")
ASKED = said(Role.USER, "is it true?")


async def claims(made: House) -> None:
    """Make them all. Raises Different for one that is not refused."""
    await made.enroll("ward", ALL_RIGHTS, telemetry=None, namespace=OTHER)
    await publish(made, WALL)
    for what, job in await _forged(made):
        settle = Settle(response=job.response, segments=job.segments, public=job.public)
        for op, record in (("generate", job), ("settle", settle)):
            if await made.message("bob", "worker", op, record, Seen()):
                raise Different(f"{op}: {what} is believed")
    for what, asking in _asked(made):
        await _refused(what, asking)
    everything = Erase(domains=[], namespaces=[PUBLIC], spared=[], principals=[], names=[])
    done = await made.rooms.post.rooms["authority"]._order("ropes", everything)  # type: ignore[attr-defined]
    if done.counts["memberships"]:
        raise Different("what is public is erased")


async def _refused(what: str, asking: Awaitable[object]) -> None:
    try:
        await asking
    except HuginnError:
        return
    raise Different(f"{what}: not refused")


async def _forged(made: House) -> Sequence[tuple[str, Generate]]:
    """Answers that the stranger asks for with a statement that is not the assembler's, or that it
    made under another profile, or of other tokens."""
    honest = job_of(made, await prompt_of(made, "bob", [WALL, ASKED]), "resp-claimed")
    private = job_of(made, await prompt_of(made, "bob", [OWN, ASKED]), "resp-claimed")
    wall = honest.segments[0]
    disguised = [structs.replace(private.segments[0], block=wall.block), *private.segments[1:]]
    bob = made.people["bob"].principal.signer
    assembler = made.rooms.signers["assembler"]

    def claimed(segments: list[Segment], public: bytes) -> Generate:
        return structs.replace(private, segments=segments, public=public)

    return [
        ("one's own word", claimed(disguised, state_prefix(bob, PROFILE, disguised[:1]))),
        ("another profile's", claimed(honest.segments, state_prefix(assembler, "rook", [wall]))),
        ("a statement of other tokens", claimed(disguised, stated(made, [wall]))),
    ]


def _asked(made: House) -> Iterator[tuple[str, Awaitable[Any]]]:
    publishing = Publish(block=ASKED.block, content=ASKED.content)
    wall: Any = object_id(WALL.block)
    worker, operator = made.worker, made.people["operator"].principal.caller
    yield "published by a room", worker.ask_as_self("ropes", "publish", publishing, Publication)
    withdrawing = Withdraw(block=wall)
    yield "withdrawn by a room", worker.ask_as_self("ropes", "withdraw", withdrawing, Publication)
    announcing = operator.ask("worker", "publications", Empty(), Empty, administer=True)
    yield "announced by who administers", announcing
    signer = Signer(hashlib.sha256(b"the people").digest())
    for changes in ({"namespace": f"{PUBLIC}/square"}, {"domain": PUBLIC}):
        ask = enrolment("people", signer, **changes)
        enrolling = operator.ask("authority", "enroll", ask, Enrolled, administer=True)
        yield f"enrolled in {changes}", enrolling
    for target in ("namespace", "domain"):
        erase = RequestErasure(target=target, name=PUBLIC)  # type: ignore[arg-type]
        erasing = operator.ask("authority", "request_erasure", erase, ErasureRow, administer=True)
        yield f"the {target} is erased", erasing
    ward = made.people["ward"].principal.caller
    erase = RequestErasure(target="principal", name=OTHER)
    erasing = ward.ask("authority", "request_erasure", erase, ErasureRow)
    yield "erased by who may erase where she works", erasing
    anybody = _anybody(made, signer).caller
    commit = Commit(namespace=PUBLIC, keep=0, blocks=[], entries=[])
    yield "committed there", anybody.ask("ropes", "commit", commit, Committed)
    yield "computed there", anybody.ask("worker", "cancel", Cancel(response="resp"), Empty)


def _anybody(made: House, signer: Signer) -> Principal:
    """One with a handle that the root never gives: on everything, in the public domain."""
    rooms = made.rooms
    chain = issue(
        rooms.root,
        audience=signer.public,
        resource=ALL,
        rights=NAMESPACE_RIGHTS,
        caveats=[DomainCaveat(name=PUBLIC)],
        nbf_ns=rooms.clock.wall_ns(),
        exp_ns=rooms.clock.wall_ns() + YEAR_NS,
        nonce=rooms.entropy.draw(NONCE_BYTES),
    )
    row = KeyRow(
        v=1, principal="anybody", chain=[*chain], namespace=PUBLIC, domain=PUBLIC, created_s=0
    )
    return Principal(row, signer, rooms.ports)
