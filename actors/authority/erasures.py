"""Erasures: asked for once, carried out by every room, however often anything dies on the way.

An erasure is a row that says what goes and which rooms have done their part. It is durable before
the first room is asked, and noted after each; so a crash anywhere leaves rooms that have done it
and rooms that will be asked again, and asking again is harmless. It is done when the last room has
answered that nothing is left on its disk. Principals that go are revoked first: nothing of theirs
is admitted anywhere while it is taken away. A room that could not be told so yet waits its turn.

The rooms are asked in the order in which what is kept is made, from the keys that admit a request
to the objects at its end, so that nothing is made again behind the erasure. A room that cannot be
reached keeps the erasure open and the others from nothing.

What is kept of a finished one says that it was, for the audit and for `huginn fsck --erased`. Of an
object it keeps no id, because that tells whoever has the bytes: a digest that no request takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, Literal

from msgspec import structs

from actors.authority.audit import AUDIT, audit_entry
from actors.authority.delegations import drop_below
from actors.authority.principals import PrincipalRecord
from actors.authority.retention import RetentionPolicies, abandoned
from actors.authority.targets import may_see, of_domain, resolved, shown
from actors.ports import Clock, Entropy
from actors.room import Call
from protocol.errors import HuginnError, NotVisible
from protocol.ids import framed_digest
from protocol.messages.erasure import (
    Erase,
    Erased,
    ErasureRow,
    RequestErasure,
    Retention,
    RoomErased,
    Target,
)
from protocol.record import Record, decode_record, encode_record
from store.commit import settled
from store.tables import Append, Change, Delete, Put, Tables

log = logging.getLogger("huginn.authority")

# Rooms that are not named here come first. The gateway forgets who may come in; ropes is last.
_ORDER: Final = ("gateway", "events", "assembler", "worker", "muninn", "ropes")
AUTHORITY: Final = "authority"
TABLE: Final = "erasures"
_PRINCIPALS: Final = "principals"
_ID_BYTES: Final = 10
_NS_PER_S: Final = 10**9
# Between two tries of a room that could not be reached, and two looks at what is due.
_RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
_LOOK_SECONDS_MAX: Final = 60.0

Send = Callable[[str, Erase], Awaitable[Erased]]


class KeptErasure(Record):
    """One erasure as kept: what is told of it, and the order. `swept`: its own rows are deleted
    here, and have yet to leave the disk."""

    v: Literal[1]
    row: ErasureRow
    order: Erase
    swept: bool

    @property
    def is_open(self) -> bool:
        return self.row.done_ns is None


class Erasures:
    """All erasures in `tables`, which `principals` lie in too. `send` gives a room its order,
    `revoke` revokes a principal by name and returns when every room knows but those that `waiting`
    names."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        entropy: Entropy,
        rooms: Sequence[str],
        *,
        send: Send,
        revoke: Callable[[str], Awaitable[object]],
        waiting: Callable[[], Collection[str]],
    ) -> None:
        self._tables = tables
        self._table = tables.keyed(TABLE)
        self._records = tables.keyed(_PRINCIPALS)
        self.policies = RetentionPolicies(tables)
        self._clock = clock
        self._entropy = entropy
        self._rooms = sorted(set(rooms) - {AUTHORITY}, key=_place)
        self._send = send
        self._revoke = revoke
        self._waiting = waiting
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._asked: set[asyncio.Task[ErasureRow]] = set()
        self._keeper: asyncio.Task[None] | None = None

    # -- asking ------------------------------------------------------------------------------

    async def request(self, call: Call, ask: RequestErasure) -> ErasureRow:
        """Begin what `ask` asks for, and carry it out as far as rooms can be reached; the rest goes
        on by itself. Raises as `RequestErasure` says."""
        order = resolved(call, ask, self._principals())
        name = fingerprint(ask.name) if ask.target == "object" else ask.name
        kept = self._new(ask.target, name, order, cause="asked", delay_ns=0)
        await self._apply([_put(kept), self._audit("erase", kept.row)])
        # To its end, also if the caller goes away, or was the principal that goes.
        task = asyncio.get_running_loop().create_task(self._carry_out(kept.row.id))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        row = await asyncio.shield(task)
        self.keep()
        return shown(call, order, row)

    def row(self, call: Call, id: str) -> ErasureRow:
        found = self._find(id)
        if found is None or not may_see(call, found.order):
            raise NotVisible(f"no erasure {id!r:.80} in this view")
        return shown(call, found.order, found.row)

    def rows(self, call: Call) -> list[ErasureRow]:
        return [
            shown(call, kept.order, kept.row) for kept in self._all() if may_see(call, kept.order)
        ]

    async def set_retention(self, policy: Retention) -> Retention:
        """From now on, for what is planned too."""
        await self._apply([self.policies.put(policy)])
        await self.look()
        self.keep()
        return policy

    def takes(self, principal: str) -> bool:
        """Whether a principal of that name is being erased. Its row goes in the end: one that was
        made in between would go with it, and leave a key behind that nobody can revoke."""
        return any(
            kept.is_open and not kept.swept and principal in kept.order.names
            for kept in self._all()
        )

    # -- carrying out ------------------------------------------------------------------------

    def keep(self) -> None:
        """Have what is open carried out when it is due, for as long as anything is. Called when
        anything may have changed."""
        self._wake.set()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(
                self._keep(), name="carry out erasures"
            )

    async def drain(self) -> None:
        """Stop; what is open is found again at the next start."""
        tasks = [*self._asked, *([self._keeper] if self._keeper is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        failed = 0
        while True:
            self._wake.clear()
            try:
                left_s = await self.step()
                failed = failed + 1 if left_s == 0 else 0
            except HuginnError as error:
                log.warning("erasures wait: %s", error.message)
                left_s, failed = 0, failed + 1
            if left_s is None:
                return
            retry_s = _RETRY_SECONDS[min(failed, len(_RETRY_SECONDS)) - 1] if failed else left_s
            with suppress(TimeoutError):
                async with asyncio.timeout(min(retry_s, _LOOK_SECONDS_MAX)):
                    await self._wake.wait()

    async def step(self) -> float | None:
        """Plan what retention asks for and carry out what is due. Seconds until something is due:
        0 if something could not be done, None if nothing is open."""
        await self.look()
        for kept in self._all():
            if kept.is_open and kept.row.due_ns <= self._clock.wall_ns():
                await self._carry_out(kept.row.id)
        due = [kept.row.due_ns for kept in self._all() if kept.is_open]
        if not due:
            return None
        return max(0, min(due) - self._clock.wall_ns()) / _NS_PER_S

    async def look(self) -> None:
        """Plan the clean-up of every domain in which nobody has authority any more."""
        gone = abandoned(self._principals())
        erasures = self._all()
        asked = [kept for kept in erasures if kept.is_open and kept.row.cause == "asked"]
        # What goes whole needs no clean-up besides.
        gone -= {domain for kept in asked for domain in kept.order.domains}
        changes: list[Change] = []
        for kept in erasures:
            if kept.row.cause != "retention":
                continue
            if kept.row.name not in gone:
                # Somebody is there again, or it was erased as a whole.
                changes.append(Delete(TABLE, kept.row.id.encode()))
                continue
            gone.discard(kept.row.name)
            due_ns = kept.row.asked_ns + self.policies.delay_ns(kept.row.name)
            if kept.is_open and due_ns != kept.row.due_ns:
                changes.append(_put(_changed(kept, due_ns=due_ns)))
        for domain in sorted(gone):
            delay_ns = self.policies.delay_ns(domain)
            planned = self._new(
                "domain", domain, of_domain(domain), cause="retention", delay_ns=delay_ns
            )
            changes.append(_put(planned))
        if changes:
            await self._apply(changes)

    async def _carry_out(self, id: str) -> ErasureRow:
        async with self._one_at_a_time:
            kept = self._find(id)
            if kept is None:
                raise NotVisible(f"no erasure {id!r:.80} in this view")
            if not kept.is_open:
                return kept.row
            for name in kept.order.names:
                if any(r.asked.name == name and not r.revoked for r in self._principals()):
                    await self._revoke(name)
            waits: str | None = None
            for room in self._rooms:
                if any(done.room == room for done in kept.row.rooms):
                    continue
                if room in self._waiting():
                    waits = f"{room}: it has yet to take what is revoked"
                    continue
                try:
                    erased = await self._send(room, kept.order)
                except HuginnError as error:
                    log.warning("erasure %s: the %s room: %s", id, room, error.message)
                    waits = f"{room}: {error.message}"
                    continue
                kept = await self._note(kept, room, erased.counts)
            if waits is None:
                kept = await self._finish(kept)
            elif waits != kept.row.waits:
                kept = _changed(kept, waits=waits)
                await self._apply([_put(kept)])
            return kept.row

    async def _note(self, kept: KeptErasure, room: str, counts: dict[str, int]) -> KeptErasure:
        done = [*kept.row.rooms, RoomErased(room=room, counts=counts)]
        kept = _changed(kept, rooms=done)
        await self._apply([_put(kept)])
        return kept

    async def _finish(self, kept: KeptErasure) -> KeptErasure:
        """The authority's own part, last: until then the row says what goes."""
        if not kept.swept:
            order = kept.order
            objects = None if order.objects is None else [*map(fingerprint, order.objects)]
            changes: list[Change] = [Delete(_PRINCIPALS, name.encode()) for name in order.names]
            changes += drop_below(self._tables, order.principals)
            # A domain from which nobody goes is only emptied: what was set for it stays.
            changes += [self.policies.drop(domain) for domain in order.domains if order.names]
            counts = {"principals": len(order.names)}
            done = [*kept.row.rooms, RoomErased(room=AUTHORITY, counts=counts)]
            order = structs.replace(order, objects=objects)
            kept = structs.replace(_changed(kept, rooms=done), order=order, swept=True)
            await self._apply([*changes, _put(kept)])
        await asyncio.to_thread(self._tables.scrub)
        row = structs.replace(kept.row, done_ns=self._clock.wall_ns(), waits=None)
        kept = structs.replace(kept, row=row)
        await self._apply([_put(kept), self._audit("erased", row)])
        log.info("erasure %s is done: %s %s", row.id, row.target, row.name)
        return kept

    # -- rows --------------------------------------------------------------------------------

    def _new(
        self,
        target: Target,
        name: str,
        order: Erase,
        *,
        cause: Literal["asked", "retention"],
        delay_ns: int,
    ) -> KeptErasure:
        now_ns = self._clock.wall_ns()
        row = ErasureRow(
            id=f"erasure-{self._entropy.draw(_ID_BYTES).hex()}",
            target=target,
            name=name,
            cause=cause,
            asked_ns=now_ns,
            due_ns=now_ns + delay_ns,
            rooms=[],
        )
        return KeptErasure(v=1, row=row, order=order, swept=False)

    def _audit(self, act: str, row: ErasureRow) -> Append:
        return Append(AUDIT, audit_entry(self._clock, act, f"{row.target} {row.name}"))

    def _principals(self) -> list[PrincipalRecord]:
        return [decode_record(PrincipalRecord, value) for _, value in self._records.items()]

    def _all(self) -> list[KeptErasure]:
        return [decode_record(KeptErasure, value) for _, value in self._table.items()]

    def _find(self, id: str) -> KeptErasure | None:
        found = self._table.get(id.encode("utf-8", "replace")[:255] or b"-")
        return None if found is None else decode_record(KeptErasure, found)

    async def _apply(self, changes: list[Change]) -> None:
        await settled(self._tables.apply_soon(changes))


def fingerprint(id: str) -> str:
    """What stands for the id of an erased object: nothing is found by it."""
    return framed_digest("huginn.erased/1", id.encode("ascii")).hex()


def traces(tables: Tables, order: Erase) -> list[str]:
    """What is here still of the principals of `order`, and of its domains; nothing, once it was
    carried out."""
    records = tables.keyed(_PRINCIPALS)
    found = [f"principal {name}" for name in order.names if records.get(name.encode()) is not None]
    below = drop_below(tables, order.principals)
    found += [f"a handle given out by one erased, {len(below)} of them"] if below else []
    if order.names:
        policies = RetentionPolicies(tables).all().domains
        found += [
            f"the retention set for {policy.domain}"
            for policy in policies
            if policy.domain in order.domains
        ]
    return found


def _changed(kept: KeptErasure, **fields: object) -> KeptErasure:
    return structs.replace(kept, row=structs.replace(kept.row, **fields))


def _put(kept: KeptErasure) -> Put:
    return Put(TABLE, kept.row.id.encode(), encode_record(kept))


def _place(room: str) -> int:
    return _ORDER.index(room) if room in _ORDER else -1
