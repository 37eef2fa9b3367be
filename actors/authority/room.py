"""The authority room: who is a principal, what has been revoked, which contracts count.

It alone holds the root key. A revocation is durable, then announced to every room that runs, then
acknowledged: so it holds for the next message wherever that goes; a room that does not run takes
the current state when it starts. Contracts are registered by signing their ids.
"""

from __future__ import annotations

import asyncio
import logging

from actors.authority.principals import Principals, audit_entry
from actors.room import Call, Room, World
from protocol.assembly import REGISTRATION_CONTEXT
from protocol.errors import HuginnError, NotVisible
from protocol.ids import parse_any
from protocol.messages import Empty
from protocol.messages import authority as messages
from protocol.record import encode_record
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer, pack_signed
from store.commit import settled
from store.tables import Append, Put, Tables

log = logging.getLogger("huginn.authority")


class AuthorityRoom(Room):
    """Owns `tables`; closes them when drained."""

    operations = messages.OPERATIONS

    def __init__(self, world: World, tables: Tables, root: Signer) -> None:
        super().__init__("authority", world)
        self._tables = tables
        self._contracts = tables.keyed("contracts")
        self._root = root
        self._principals = Principals(tables, root, world.clock, world.entropy)
        self._take_revocations(self._principals.revocations())
        self._revoking: set[asyncio.Task[messages.Revocations]] = set()

    async def drain(self) -> None:
        await asyncio.gather(*self._revoking, return_exceptions=True)
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
        return await self._principals.enroll(ask)

    async def on_principals(self, call: Call, ask: Empty) -> messages.Principals:
        rows = self._principals.rows()
        return messages.Principals(
            principals=[row for row in rows if _reaches(call, Right.GRANT, row.namespace)]
        )

    async def on_revoke(self, call: Call, ask: messages.Revoke) -> messages.Revocations:
        rows = self._principals.rows()
        if not any(
            row.name == ask.name and _reaches(call, Right.REVOKE, row.namespace) for row in rows
        ):
            raise NotVisible(f"no principal {ask.name!r:.80}")
        # To its end, also if the caller goes away: what is durable has to be announced.
        revoking = asyncio.get_running_loop().create_task(self._revoke(ask.name))
        self._revoking.add(revoking)
        revoking.add_done_callback(self._revoking.discard)
        return await asyncio.shield(revoking)

    async def _revoke(self, name: str) -> messages.Revocations:
        revocations = await self._principals.revoke(name)
        self._take_revocations(revocations)
        for room in sorted(set(self.world.room_to_key) - {self.name, "gateway"}):
            await self._announce(room, revocations)
        return revocations

    async def tell(self, room: str) -> None:
        """Announce what is revoked to `room`, which could not be reached until now."""
        await self._announce(room, self._principals.revocations())

    async def on_current(self, call: Call, ask: Empty) -> messages.Revocations:
        return self._principals.revocations()

    async def _announce(self, room: str, revocations: messages.Revocations) -> None:
        try:
            await self.ask_as_self(room, "revocations", revocations, Empty)
        except HuginnError as error:
            log.warning("the %s room was not told of epoch %d: %s", room, revocations.epoch, error)

    async def on_register(
        self, call: Call, ask: messages.RegisterContract
    ) -> messages.Registration:
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
                    Append("audit", audit_entry(self.world.clock, "register", str(contract))),
                ]
            )
        )
        return messages.Registration(signed=signed)


def _reaches(call: Call, right: Right, namespace: str) -> bool:
    """Whether the caller administers there: a handle may be for a part of the installation."""
    return call.handle.permits(right, Resource(kind=ResourceKind.NAMESPACE, name=namespace))
