"""Erasures: begun once, carried out by every room, and retention as erasures that were planned."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from actors.authority.erasures import TABLE, KeptErasure, fingerprint, traces
from actors.authority.room import AuthorityRoom
from actors.room import Room
from protocol import cbor
from protocol.capability import decode_link
from protocol.errors import (
    CapabilityError,
    Conflict,
    ContentError,
    InvocationError,
    NotVisible,
    StoreFault,
)
from protocol.ids import TextId
from protocol.messages import Empty, Operation
from protocol.messages import authority as messages
from protocol.messages.erasure import (
    AskErasure,
    Erase,
    Erased,
    ErasureRow,
    Erasures,
    RequestErasure,
    Retention,
    Retentions,
)
from protocol.record import decode_record
from protocol.resource import Right
from protocol.signing import Signer
from tests.rooms import SECOND, Installation, Principal, enrolment

DAY = 86_400 * SECOND


class Keeping(Room):
    """A room that says how often it was asked to erase what; `fault`: with what it answers."""

    operations: ClassVar[dict[str, Operation]] = {}

    def __init__(self, name: str, house: Installation) -> None:
        super().__init__(name, house.world(name))
        self.asked: list[Erase] = []
        self.fault: StoreFault | None = None

    async def erase(self, ask: Erase) -> dict[str, int]:
        self.asked.append(ask)
        if self.fault is not None:
            raise self.fault
        return {"things": len(self.asked)}


class Lot(Installation):
    """An installation in which every room but the authority is one that keeps count."""

    async def start(self) -> Lot:
        await super().start()
        self.keeping = {
            name: Keeping(name, self) for name in self.room_to_key if name != "authority"
        }
        for name in ("ropes", "assembler"):
            self.keeping[name] = Keeping(name, self)
        self.post.rooms.update(self.keeping)
        self.operator = await self.enroll("operator", administers=True)
        self.alice = await self.enroll("alice")
        return self

    @property
    def authority(self) -> AuthorityRoom:
        room = self.post.rooms["authority"]
        assert isinstance(room, AuthorityRoom)
        return room

    async def erase(self, target: Any, name: str, *, by: Principal | None = None) -> ErasureRow:
        ask = RequestErasure(target=target, name=name, namespace="alice")
        caller = (by or self.operator).caller
        return await caller.ask(
            "authority", "request_erasure", ask, ErasureRow, administer=by is None
        )

    async def rows(self) -> list[ErasureRow]:
        found = await self.operator.caller.ask(
            "authority", "erasures", Empty(), Erasures, administer=True
        )
        return found.erasures

    async def revoke(self, name: str) -> None:
        await self.operator.caller.ask(
            "authority",
            "revoke",
            messages.Revoke(name=name),
            Empty,
            administer=True,
        )

    async def retain(self, domain: str, policy: Any, seconds: int = 0) -> Retention:
        ask = Retention(domain=domain, policy=policy, seconds=seconds)
        return await self.operator.caller.ask(
            "authority", "set_retention", ask, Retention, administer=True
        )

    async def settled(self) -> None:
        """Until what is due is done."""
        async with asyncio.timeout(60):
            while await self.authority.erasures.step() == 0:
                await asyncio.sleep(0)


@pytest.fixture
async def lot() -> Lot:
    return await Lot().start()


def acts(lot: Lot) -> list[tuple[object, object]]:
    entries = [cbor.decode(entry.body) for entry in lot.tables.log("audit").entries()]
    return [(e["act"], e["subject"]) for e in entries if isinstance(e, dict)]


# -- erasing ---------------------------------------------------------------------------------


@pytest.mark.req("AUT-8")
async def test_every_room_is_asked_once_under_a_handle_for_that_alone(lot: Lot) -> None:
    row = await lot.erase("principal", "alice")
    assert row.done_ns == lot.clock.now_ns
    assert {done.room: done.counts for done in row.rooms} == {
        **{name: {"things": 1} for name in lot.keeping},
        "authority": {"principals": 1},
    }
    for room in lot.keeping.values():
        (order,) = room.asked
        assert (order.domains, order.namespaces, order.names) == (["alice"], ["alice"], ["alice"])
        assert order.principals == [lot.alice.signer.public]
    for envelope in lot.post.sent:
        if envelope.op == "erase":
            (link,) = (decode_link(each).capability for each in envelope.chain)
            assert link.rights == (Right.ERASE,)
            assert str(link.res) == f"service {envelope.room}"
    assert acts(lot)[-3:] == [
        ("erase", "principal alice"),
        ("revoke", "alice"),
        ("erased", "principal alice"),
    ]
    lot.tables.log("audit").verify()
    assert lot.tables.rows("principals").keys() == {b"operator"}


@pytest.mark.req("AUT-8")
async def test_only_the_authority_has_a_room_erase(lot: Lot) -> None:
    order = Erase(domains=["bob"], namespaces=["alice"], spared=[], principals=[], names=[])
    with pytest.raises(ContentError, match="only the authority has a room erase"):
        await lot.alice.caller.ask("ropes", "erase", order, Erased)
    less = await lot.enroll("carol", rights=("read", "write"))
    with pytest.raises(InvocationError, match="needs the right 'erase'"):
        await less.caller.ask("ropes", "erase", order, Erased)
    assert lot.keeping["ropes"].asked == []


@pytest.mark.req("AUT-8")
async def test_a_room_that_fails_is_asked_again_and_the_others_are_not(lot: Lot) -> None:
    lot.keeping["worker"].fault = StoreFault("the disk is full")
    row = await lot.erase("domain", "alice")
    assert (row.done_ns, row.waits) == (None, "worker: the disk is full")
    await lot.authority.erasures.step()
    lot.keeping["worker"].fault = None
    await lot.settled()
    (row,) = await lot.rows()
    assert row.done_ns is not None
    assert row.waits is None
    assert [len(room.asked) for name, room in lot.keeping.items() if name != "worker"] == [
        1 for _ in range(len(lot.keeping) - 1)
    ]
    assert len(lot.keeping["worker"].asked) >= 3


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("step", range(12))
async def test_a_crash_after_any_write_is_finished(lot: Lot, step: int) -> None:
    """The authority's file is as it was after `step` transactions, and the room starts over it."""
    table, log = lot.tables, lot.post
    apply = table.apply_soon
    left = [step]

    class Died(BaseException):
        pass

    def dying(changes: Any) -> Any:
        if left[0] == 0:
            raise Died
        left[0] -= 1
        return apply(changes)

    erasures = lot.authority.erasures
    erasures._tables = Dying(table, dying)  # type: ignore[assignment]
    try:
        await lot.erase("principal", "alice")
    except BaseException as error:
        if not isinstance(error, (Died, Exception)):
            raise
    await erasures.drain()
    log.rooms.pop("authority")
    lot.clock.now_ns += SECOND
    await lot.restart("authority")
    await lot.settled()
    rows = await lot.rows()
    if not rows:
        assert step == 0  # it was never begun, and nobody was told that it was
        return
    assert rows[0].done_ns is not None
    assert lot.tables.rows("principals").keys() == {b"operator"}
    assert all(room.asked for room in lot.keeping.values())
    assert acts(lot)[-1] == ("erased", "principal alice")


class Dying:
    """Tables whose transactions go through `apply_soon` of a test."""

    def __init__(self, tables: Any, apply_soon: Any) -> None:
        self._tables = tables
        self.apply_soon = apply_soon

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


async def test_what_is_kept_of_an_object_is_no_id(lot: Lot) -> None:
    id = str(TextId.of(b"a secret"))
    row = await lot.erase("object", id, by=lot.alice)
    assert row.name == fingerprint(id)
    assert lot.keeping["ropes"].asked[0].objects == [id]
    (value,) = lot.tables.rows(TABLE).values()
    assert decode_record(KeptErasure, value).order.objects == [fingerprint(id)]
    assert id.encode() not in value
    with pytest.raises(ContentError):
        await lot.erase("object", "no id", by=lot.alice)


async def test_an_erasure_is_shown_to_who_may_have_asked_for_it(lot: Lot) -> None:
    bob = await lot.enroll("bob")
    row = await lot.erase("namespace", "alice/x", by=lot.alice)
    ask = AskErasure(id=row.id)
    assert await lot.alice.caller.ask("authority", "erasure", ask, ErasureRow) == row
    refused = []
    for id in (row.id, "erasure-none", ""):
        with pytest.raises(NotVisible) as caught:
            await bob.caller.ask("authority", "erasure", AskErasure(id=id), ErasureRow)
        refused.append(caught.value.message.replace(repr(id), "…"))
    assert len(set(refused)) == 1
    found = await bob.caller.ask("authority", "erasures", Empty(), Erasures)
    assert found.erasures == []


# -- retention -------------------------------------------------------------------------------


@pytest.mark.req("AUT-4")
async def test_what_was_computed_goes_in_time_after_the_last_revocation(lot: Lot) -> None:
    await lot.retain("alice", "bounded", 60)
    await lot.revoke("alice")
    await lot.authority.erasures.step()
    (row,) = await lot.rows()
    assert (row.cause, row.name, row.due_ns) == (
        "retention",
        "alice",
        lot.clock.now_ns + 60 * SECOND,
    )
    assert lot.keeping["worker"].asked == []
    lot.clock.now_ns += 60 * SECOND
    await lot.settled()
    order = lot.keeping["worker"].asked[0]
    assert order == Erase(domains=["alice"], namespaces=[], spared=[], principals=[], names=[])
    (row,) = await lot.rows()
    assert row.done_ns is not None
    # Once: nothing is planned again for what stays revoked.
    await lot.authority.erasures.step()
    assert len(lot.keeping["worker"].asked) == 1


@pytest.mark.req("AUT-4")
async def test_immediate_is_at_once(lot: Lot) -> None:
    await lot.retain("alice", "immediate")
    await lot.revoke("alice")
    async with asyncio.timeout(60):
        while not all(room.asked for room in lot.keeping.values()):
            await asyncio.sleep(0)


@pytest.mark.req("AUT-4")
async def test_a_domain_that_somebody_is_in_keeps_what_it_has(lot: Lot) -> None:
    await lot.retain("alice", "bounded", 60)
    await lot.revoke("alice")
    await lot.authority.erasures.step()
    assert len(await lot.rows()) == 1
    await lot.enroll("alice")
    lot.clock.now_ns += DAY
    await lot.authority.erasures.step()
    assert await lot.rows() == []
    assert lot.keeping["worker"].asked == []


@pytest.mark.req("AUT-4")
async def test_a_crash_between_revocation_and_plan_is_made_good(lot: Lot) -> None:
    """What is planned follows from who is revoked, so nothing is lost between the two."""
    await lot.revoke("alice")
    await lot.authority.erasures.drain()
    for key in lot.tables.rows(TABLE):
        lot.tables.keyed(TABLE).delete(key)
    lot.clock.now_ns += SECOND
    await lot.restart("authority")
    await lot.authority.erasures.step()
    (row,) = await lot.rows()
    assert row.due_ns == lot.clock.now_ns + DAY


async def test_another_policy_holds_for_what_is_planned(lot: Lot) -> None:
    await lot.revoke("alice")
    await lot.authority.erasures.step()
    await lot.retain("alice", "bounded", 5)
    (row,) = await lot.rows()
    assert row.due_ns == row.asked_ns + 5 * SECOND
    found = await lot.operator.caller.ask(
        "authority", "retentions", Empty(), Retentions, administer=True
    )
    assert found.domains == [Retention(domain="alice", policy="bounded", seconds=5)]
    assert found.standard.seconds == 86_400
    # A room's own handle operates its own service, and nothing else.
    ask = Retention(domain="alice", policy="immediate", seconds=0)
    with pytest.raises(CapabilityError, match="does not hold 'operate'"):
        await lot.keeping["worker"].ask_as_self("authority", "set_retention", ask, Retention)


@pytest.mark.req("AUT-8")
async def test_what_a_principal_gave_out_is_forgotten_with_it(lot: Lot) -> None:
    bob = await lot.enroll("bob")
    for who in (lot.alice, bob):
        chain = who.chain("ropes", audience=Signer(b"k" * 32).public)
        ask = messages.HandOut(chain=list(chain))
        await who.caller.ask("authority", "hand_out", ask, messages.HandedRow)
    assert len(lot.tables.rows("delegations")) == 2
    await lot.retain("alice", "bounded", 5)
    order = Erase(
        domains=["alice"],
        namespaces=["alice"],
        spared=[],
        principals=[lot.alice.row.public],
        names=["alice"],
    )
    assert traces(lot.tables, order) == [
        "principal alice",
        "a handle given out by one erased, 1 of them",
        "the retention set for alice",
    ]
    await lot.erase("principal", "alice")
    assert traces(lot.tables, order) == []
    (kept,) = lot.tables.rows("delegations").values()
    assert bob.row.chain[0] in kept


@pytest.mark.req("AUT-8")
async def test_nobody_is_enrolled_under_a_name_that_is_being_erased(lot: Lot) -> None:
    """Its row would be deleted with the other, and its key would go on to be taken."""
    lot.keeping["worker"].fault = StoreFault("the disk is full")
    assert (await lot.erase("principal", "alice")).done_ns is None
    again = enrolment("alice", Signer(b"n" * 32))

    async def enroll() -> messages.Enrolled:
        return await lot.operator.caller.ask(
            "authority", "enroll", again, messages.Enrolled, administer=True
        )

    with pytest.raises(Conflict, match="is being erased"):
        await enroll()
    lot.keeping["worker"].fault = None
    await lot.settled()
    await enroll()
    await lot.settled()
    (row,) = (each for each in lot.authority._principals.rows() if each.name == "alice")
    assert not row.revoked
