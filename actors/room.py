"""What every room is: one entry for messages, and nothing done before the message is admitted.

`receive` and `stream` decode the envelope, let the door verify its chain, delegations and
invocation, and only then call the operation's method: for an operation `commit`,
`on_commit(call, ask)`. A refusal, a caller's mistake or a fault of ours goes back as an error
record; nothing is raised across a room's edge.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from actors.ports import Clock, Entropy, Mailbox
from protocol.capability import Capability
from protocol.door import Door
from protocol.envelope import Envelope, decode_envelope, open_reply, seal, seal_error, seal_reply
from protocol.errors import ContentError, FaultError, HuginnError
from protocol.handle import Handle
from protocol.ids import CapabilityId
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages import Empty, Operation
from protocol.messages.authority import NOTICE, Revocations
from protocol.record import Record, decode_record, encode_record
from protocol.resource import ResourceKind, Right
from protocol.signing import NONCE_BYTES, Signer

log = logging.getLogger("huginn.room")

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class World:
    """What a shell gives a room: the ports, its own key, and who is who.

    `anchors` are the root authority's public keys; `room_to_key` each room's public key;
    `service_chain` the room's own handle, which carries no right on any namespace.
    """

    clock: Clock
    entropy: Entropy
    mailbox: Mailbox
    signer: Signer
    anchors: frozenset[bytes]
    room_to_key: Mapping[str, bytes]
    service_chain: tuple[bytes, ...]


@dataclass(frozen=True)
class Call:
    """One admitted message: what its handle allows, and the chains it brought for other rooms."""

    handle: Handle
    envelope: Envelope

    @property
    def request(self) -> str:
        return self.envelope.request_id

    @property
    def domain(self) -> str:
        """The caller's computation-sharing domain; ContentError if its handle names none."""
        if self.handle.domain is None:
            raise ContentError("the handle names no computation-sharing domain: nothing to run in")
        return self.handle.domain

    def namespace_root(self) -> str | None:
        """The path of the handle's namespace; None for a handle on something else."""
        resource = self.handle.resource
        return resource.name if resource.kind is ResourceKind.NAMESPACE else None

    def has(self, right: Right) -> bool:
        return right in self.handle.rights


class Room:
    """Base of all rooms. A subclass sets `operations` and writes `on_<operation>` for each."""

    operations: ClassVar[Mapping[str, Operation]]

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        table = {**self.operations, **NOTICE}
        self._table = table
        self._door = Door(
            name,
            {op: Right(operation.right) for op, operation in table.items()},
            world.anchors,
            started_ns=world.clock.wall_ns(),
        )
        self._take_revocations(Revocations(epoch=0, revoked=[]))

    # -- the edge ----------------------------------------------------------------------------

    async def receive(self, message: bytes) -> bytes:
        """The reply to one message. Raises nothing but cancellation."""
        try:
            call, ask = self._admit(message, streams=False)
            reply: Record = await getattr(self, f"on_{call.envelope.op}")(call, ask)
            return seal_reply(encode_record(reply, size_max=MESSAGE_BYTES_MAX))
        except HuginnError as error:
            return seal_error(error)
        except Exception:
            log.exception("%s: fault in an operation", self.name)
            return seal_error(FaultError(f"the {self.name} room failed; its log says why"))

    async def stream(self, message: bytes) -> AsyncIterator[bytes]:
        """Replies to one message, in order. An error is the last of them."""
        try:
            call, ask = self._admit(message, streams=True)
            items: AsyncGenerator[Record, None] = getattr(self, f"on_{call.envelope.op}")(call, ask)
            async with aclosing(items):
                async for item in items:
                    yield seal_reply(encode_record(item))
        except HuginnError as error:
            yield seal_error(error)
        except Exception:
            log.exception("%s: fault in a stream", self.name)
            yield seal_error(FaultError(f"the {self.name} room failed; its log says why"))

    async def start(self) -> None:
        """Called once, when the other rooms can be reached, before the first message."""
        if self.name != "authority":
            current = await self.ask_as_self("authority", "current", Empty(), Revocations)
            # A notice may have overtaken the answer: what it revoked stays revoked.
            if current.epoch > self._epoch:
                self._take_revocations(current)

    async def drain(self) -> None:
        """Finish or fail what is running, flush what is durable, stop."""

    def _admit(self, message: bytes, *, streams: bool) -> tuple[Call, Record]:
        envelope = decode_envelope(message)
        admitted = self._door.admit(
            envelope,
            now_ns=self.world.clock.wall_ns(),
            epoch=self._epoch,
            is_revoked=self._is_revoked,
        )
        operation = self._table[envelope.op]
        if operation.streams is not streams:
            raise ContentError(f"{self.name} {envelope.op}: asked as the wrong kind of call")
        ask = decode_record(operation.ask, envelope.body, size_max=MESSAGE_BYTES_MAX)
        return Call(admitted.handle, envelope), ask

    # -- revocation --------------------------------------------------------------------------

    def _is_revoked(self, capability_id: CapabilityId, capability: Capability) -> bool:
        return capability_id.digest in self._revoked

    @property
    def epoch(self) -> int:
        """The authority's epoch, as this room knows it."""
        return self._epoch

    def _take_revocations(self, revocations: Revocations) -> None:
        self._epoch = revocations.epoch
        self._revoked = frozenset(revocations.revoked)

    async def on_revocations(self, call: Call, ask: Revocations) -> Record:
        """The authority's notice. An older epoch than ours is stale, and changes nothing."""
        if call.handle.audience != self.world.room_to_key["authority"]:
            raise ContentError("only the authority announces revocations")
        if ask.epoch > self._epoch:
            self._take_revocations(ask)
        return Empty()

    # -- asking other rooms ------------------------------------------------------------------

    async def ask_for(self, call: Call, room: str, op: str, record: Record, reply: type[R]) -> R:
        """Ask another room on the caller's behalf, under the chain that came for it."""
        delegations = call.envelope.delegations or {}
        if room not in delegations:
            raise ContentError(f"the message brought no delegation for the {room} room")
        return await self._ask(delegations[room], room, op, record, reply, request=call.request)

    async def ask_as_self(self, room: str, op: str, record: Record, reply: type[R]) -> R:
        """Ask another room under this room's own service handle."""
        return await self._ask(self.world.service_chain, room, op, record, reply, request=self.name)

    async def _ask(
        self,
        chain: tuple[bytes, ...],
        room: str,
        op: str,
        record: Record,
        reply: type[R],
        *,
        request: str,
    ) -> R:
        message = seal(
            chain,
            self.world.signer,
            room=room,
            op=op,
            body=encode_record(record, size_max=MESSAGE_BYTES_MAX),
            ts_ns=self.world.clock.wall_ns(),
            nonce=self.world.entropy.draw(NONCE_BYTES),
            request_id=request,
        )
        body = open_reply(await self.world.mailbox.call(room, message))
        return decode_record(reply, body, size_max=MESSAGE_BYTES_MAX)
