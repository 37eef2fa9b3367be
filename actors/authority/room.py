"""The authority room: who is a principal, what has been revoked, which contracts count.

It alone holds the root key. A revocation is durable, then announced to every room that runs, then
acknowledged: so it holds for the next message wherever that goes; a room that does not run takes
the current state when it starts. One that runs and does not take it is named in the answer, and
told until it does (`actors/telling.py`). Contracts are registered by signing their ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from actors.authority.audit import AUDIT, AuditLog, audit_entry
from actors.authority.delegations import Delegations
from actors.authority.erasures import Erasures
from actors.authority.principals import Principals
from actors.room import Call, Room, World
from actors.telling import Telling
from protocol.assembly import REGISTRATION_CONTEXT
from protocol.capability import issue
from protocol.errors import Conflict, ContentError, NotVisible
from protocol.ids import parse_any
from protocol.limits import TURN_HANDLE_LIFETIME_NS
from protocol.messages import Empty, erasure
from protocol.messages import authority as messages
from protocol.record import Record, encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right
from protocol.signing import NONCE_BYTES, Signer, pack_signed
from store.commit import settled
from store.tables import Append, Put, Tables

log = logging.getLogger("huginn.authority")

R = TypeVar("R", bound=Record)


class AuthorityRoom(Room):
    """Owns `tables`; closes them when drained."""

    operations = messages.OPERATIONS

    def __init__(self, world: World, tables: Tables, root: Signer) -> None:
        super().__init__("authority", world)
        self._tables = tables
        self._contracts = tables.keyed("contracts")
        self._root = root
        self._audit = AuditLog(tables, world.clock)
        self._principals = Principals(tables, root, world.clock, world.entropy)
        self._take_revocations(self._principals.revocations())
        self._delegations = Delegations(tables, root.public, world.clock, self._is_revoked)
        self._revoking: set[asyncio.Task[Any]] = set()
        self._telling = Telling(self._announce)
        self.erasures = Erasures(
            tables,
            world.clock,
            world.entropy,
            tuple(world.room_to_key),
            send=self._order,
            revoke=self._revoke,
            waiting=lambda: self._telling.waiting,
        )

    async def start(self) -> None:
        await super().start()
        self.erasures.keep()

    async def drain(self) -> None:
        await self.erasures.drain()
        await asyncio.gather(*self._revoking, return_exceptions=True)
        await self._telling.drain()
        self._tables.close()

    async def on_enroll(self, call: Call, ask: messages.Enroll) -> messages.Enrolled:
        if not _reaches(call, Right.GRANT, ask.namespace) or ask.administers:
            raise NotVisible("no such namespace in this view")
        if not all(call.handle.sees(domain) for domain in ask.telemetry or ()):
            raise NotVisible("no such domain in this view")
        # Neither a name nor a domain of somebody who lies outside what the caller administers.
        for row in self._principals.rows():
            if (row.name == ask.name or row.domain == ask.domain) and not _reaches(
                call, Right.GRANT, row.namespace
            ):
                raise NotVisible("no such namespace in this view")
        if self.erasures.takes(ask.name):
            raise Conflict(
                f"a principal {ask.name!r} is being erased: ask again when `huginn erase` says it "
                "is done, or choose another name"
            )
        return await self._principals.enroll(ask)

    async def on_principals(self, call: Call, ask: Empty) -> messages.Principals:
        rows = self._principals.rows()
        return messages.Principals(
            principals=[row for row in rows if _reaches(call, Right.GRANT, row.namespace)]
        )

    async def on_revoke(self, call: Call, ask: messages.Revoke) -> messages.Revoked:
        rows = self._principals.rows()
        if not any(
            row.name == ask.name and _reaches(call, Right.REVOKE, row.namespace) for row in rows
        ):
            raise NotVisible(f"no principal {ask.name!r:.80}")
        return await self._to_its_end(self._revoke(ask.name))

    async def _to_its_end(self, work: Coroutine[Any, Any, R]) -> R:
        """Also if the caller goes away: what is durable has to be announced."""
        revoking = asyncio.get_running_loop().create_task(work)
        self._revoking.add(revoking)
        revoking.add_done_callback(self._revoking.discard)
        return await asyncio.shield(revoking)

    async def _revoke(self, name: str) -> messages.Revoked:
        await self._principals.revoke(name)
        waiting = await self._announced()
        # Of a domain that nobody is left in, what was computed for it has its time.
        self.erasures.keep()
        return messages.Revoked(waiting=waiting)

    async def _announced(self) -> list[str] | None:
        """Returns when every room that runs was told what is revoked, or after a while; which ones
        were not, as an answer names them."""
        self._take_revocations(self._principals.revocations())
        rooms = sorted(set(self.world.room_to_key) - {self.name})
        return await self._telling.tell(rooms) or None

    async def tell(self, room: str) -> None:
        """Announce what is revoked to `room`, which could not be reached until now."""
        await self._telling.tell([room])

    async def on_current(self, call: Call, ask: Empty) -> messages.Revocations:
        self._require_operator(call)
        return self._principals.revocations()

    async def _announce(self, room: str) -> bool:
        revocations = self._principals.revocations()
        runs = await self.tell_running(room, "revocations", revocations)
        if not runs:
            log.warning(
                "the %s room was not told of epoch %d: it does not run, and asks when it starts",
                room,
                revocations.epoch,
            )
        return runs

    # -- erasure -----------------------------------------------------------------------------

    async def _order(self, room: str, order: erasure.Erase) -> erasure.Erased:
        """Give `room` an order, under a handle for this errand alone."""
        now_ns = self.world.clock.wall_ns()
        chain = issue(
            self._root,
            audience=self.world.signer.public,
            resource=Resource(kind=ResourceKind.SERVICE, name=room),
            rights=(Right.ERASE,),
            nbf_ns=now_ns,
            exp_ns=now_ns + TURN_HANDLE_LIFETIME_NS,
            nonce=self.world.entropy.draw(NONCE_BYTES),
        )
        return await self._ask(chain, room, "erase", order, erasure.Erased, request=self.name)

    async def on_request_erasure(
        self, call: Call, ask: erasure.RequestErasure
    ) -> erasure.ErasureRow:
        return await self.erasures.request(call, ask)

    async def on_erasure(self, call: Call, ask: erasure.AskErasure) -> erasure.ErasureRow:
        return self.erasures.row(call, ask.id)

    async def on_erasures(self, call: Call, ask: Empty) -> erasure.Erasures:
        return erasure.Erasures(erasures=self.erasures.rows(call))

    async def on_set_retention(self, call: Call, ask: erasure.Retention) -> erasure.Retention:
        call.handle.require(Right.OPERATE, ALL)
        return await self.erasures.set_retention(ask)

    async def on_retentions(self, call: Call, ask: Empty) -> erasure.Retentions:
        call.handle.require(Right.OPERATE, ALL)
        return self.erasures.policies.all()

    # -- handles that principals gave out ---------------------------------------------------

    async def on_hand_out(self, call: Call, ask: messages.HandOut) -> messages.HandedRow:
        return await self._delegations.tell(call.handle, ask.chain)

    async def on_handed_out(self, call: Call, ask: Empty) -> messages.HandedOut:
        return self._delegations.rows(call.handle)

    async def on_take_back(self, call: Call, ask: messages.TakeBack) -> messages.TakenBack:
        return await self._to_its_end(self._take_back(call, ask))

    async def _take_back(self, call: Call, ask: messages.TakeBack) -> messages.TakenBack:
        taken = await self._delegations.take_back(call.handle, ask.id, ask.chain)
        waiting = await self._announced()
        return messages.TakenBack(id=taken, waiting=waiting)

    # -- the audit log -----------------------------------------------------------------------

    async def on_refused(self, call: Call, ask: messages.Refused) -> Empty:
        names = {key: name for name, key in self.world.room_to_key.items()}
        room = names.get(call.handle.audience)
        if room is None:
            raise ContentError("only rooms say what they refused")
        await self._audit.refused(room, ask)
        return Empty()

    async def _tell_refused(self, refused: messages.Refused) -> None:
        await self._audit.refused(self.name, refused)

    async def on_audit(self, call: Call, ask: messages.AskAudit) -> messages.AuditPage:
        if not call.handle.permits(Right.OPERATE, ALL):
            raise NotVisible("the audit log is for those who operate the whole installation")
        return self._audit.page(ask)

    async def on_register(
        self, call: Call, ask: messages.RegisterContract
    ) -> messages.Registration:
        self._require_operator(call)
        contract = parse_any(ask.id)
        contract.check(ask.body)
        key = str(contract).encode("ascii")
        found = self._contracts.get(key)
        if found is not None:
            return messages.Registration(signed=found)
        payload = messages.RegistrationPayload(
            v=1,
            id=str(contract),
            epoch=self._principals.revocations().epoch,
            registered_ns=self.world.clock.wall_ns(),
        )
        signed = pack_signed(self._root, REGISTRATION_CONTEXT, encode_record(payload))
        await settled(
            self._tables.apply_soon(
                [
                    Put("contracts", key, signed),
                    Append(AUDIT, audit_entry(self.world.clock, "register", str(contract))),
                ]
            )
        )
        return messages.Registration(signed=signed)


def _reaches(call: Call, right: Right, namespace: str) -> bool:
    """Whether the caller administers there: a handle may be for a part of the installation."""
    return call.handle.permits(right, Resource(kind=ResourceKind.NAMESPACE, name=namespace))
