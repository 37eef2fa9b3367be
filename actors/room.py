"""What every room is: one entry for messages, and nothing done before the message is admitted.

`receive` and `stream` decode the envelope, let the door verify its chain, delegations and
invocation, and only then call the operation's method: for an operation `commit`,
`on_commit(call, ask)`. A refusal, a caller's mistake or a fault of ours goes back as an error
record; nothing is raised across a room's edge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from actors.live_streams import LiveStreams
from actors.ports import Clock, Entropy, Mailbox
from actors.refusals import RefusalQueue
from protocol.capability import Capability
from protocol.door import Door
from protocol.envelope import Envelope, decode_envelope, open_reply, seal, seal_error, seal_reply
from protocol.errors import (
    AuthorityError,
    ContentError,
    FaultError,
    HuginnError,
    Unavailable,
    WorkerFault,
)
from protocol.handle import Handle
from protocol.ids import CapabilityId
from protocol.limits import MARK_AHEAD_NS, MESSAGE_BYTES_MAX
from protocol.messages import Empty, Operation
from protocol.messages.authority import NOTICE, Refused, Revocations
from protocol.messages.erasure import Erase, Erased
from protocol.nonces import HighMark
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import NONCE_BYTES, Signer

log = logging.getLogger("huginn.room")

_NS_PER_S: Final = 10**9

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class World:
    """What a shell gives a room: the ports, its own key, and who is who.

    `anchors` are the root authority's public keys; `room_to_key` each room's public key;
    `service_chain` the room's own handle, which carries no right on any namespace; `mark` what
    outlives the room of what its door accepted (None: nothing does). `audited`: whether the
    authority is told what is refused.
    """

    clock: Clock
    entropy: Entropy
    mailbox: Mailbox
    signer: Signer
    anchors: frozenset[bytes]
    room_to_key: Mapping[str, bytes]
    service_chain: tuple[bytes, ...]
    mark: HighMark | None = None
    audited: bool = True


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
            {
                op: None if operation.right is None else Right(operation.right)
                for op, operation in table.items()
            },
            world.anchors,
            started_ns=world.clock.wall_ns(),
            mark=world.mark,
        )
        self._live = LiveStreams()
        self._take_revocations(Revocations(epoch=0, revoked=[]))
        self.refusals = RefusalQueue(world.clock, self._tell_refused if world.audited else None)

    # -- the edge ----------------------------------------------------------------------------

    async def receive(self, message: bytes) -> bytes:
        """The reply to one message. Raises nothing but cancellation."""
        envelope = None
        try:
            envelope = decode_envelope(message)
            call, ask = self._admit(envelope, streams=False)
            reply: Record = await getattr(self, f"on_{call.envelope.op}")(call, ask)
            return seal_reply(encode_record(reply, size_max=MESSAGE_BYTES_MAX))
        except HuginnError as error:
            self._note(envelope, error)
            return seal_error(error)
        except Exception:
            log.exception("%s: fault in an operation", self.name)
            return seal_error(FaultError(f"the {self.name} room failed; its log says why"))

    async def stream(self, message: bytes) -> AsyncIterator[bytes]:
        """Replies to one message, in order. An error is the last of them."""
        envelope = None
        try:
            envelope = decode_envelope(message)
            call, ask = self._admit(envelope, streams=True)
            items: AsyncGenerator[Record, None] = getattr(self, f"on_{call.envelope.op}")(call, ask)
            async with aclosing(items):
                async for item in self._live.until_revoked(call.handle, items):
                    yield seal_reply(encode_record(item))
        except HuginnError as error:
            self._note(envelope, error)
            yield seal_error(error)
        except Exception:
            log.exception("%s: fault in a stream", self.name)
            yield seal_error(FaultError(f"the {self.name} room failed; its log says why"))

    async def start(self) -> None:
        """Called once, when the other rooms can be reached, before the first message."""
        await self._until_open()
        if self.name != "authority":
            current = await self.ask_as_self("authority", "current", Empty(), Revocations)
            # A notice may have overtaken the answer: what it revoked stays revoked.
            if current.epoch > self._epoch:
                self._take_revocations(current)

    async def _until_open(self) -> None:
        """Wait out the high mark, if this start follows close on the last message."""
        early_ns = self._door.nonces.started_ns - self.world.clock.wall_ns()
        if early_ns > MARK_AHEAD_NS:
            log.error(
                "%s: the clock is %d s behind messages that were accepted before this start; "
                "nothing is accepted until it has caught up",
                self.name,
                early_ns // _NS_PER_S,
            )
        elif early_ns > 0:
            await asyncio.sleep(early_ns / _NS_PER_S)

    async def drain(self) -> None:
        """Finish or fail what is running, flush what is durable, stop."""

    def _admit(self, envelope: Envelope, *, streams: bool) -> tuple[Call, Record]:
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

    # -- refusals ----------------------------------------------------------------------------

    def _require_operator(self, call: Call) -> None:
        """Raises CapabilityError with step `scope` unless the caller is a room, or operates this
        one: what is about everybody is not for who administers a part of the installation."""
        # By the key that the anchor granted to: whatever was given out has a giver there.
        if call.handle.principal not in self.world.room_to_key.values():
            call.handle.require(Right.OPERATE, Resource(kind=ResourceKind.SERVICE, name=self.name))

    def _note(self, envelope: Envelope | None, error: HuginnError) -> None:
        if envelope is not None and isinstance(error, AuthorityError):
            self.refusals.put(error.step, envelope.op, envelope.request_id, envelope.chain)

    async def _tell_refused(self, refused: Refused) -> None:
        await self.ask_as_self("authority", "refused", refused, Empty)

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
        self._live.revoke(self._revoked)

    async def on_revocations(self, call: Call, ask: Revocations) -> Record:
        """The authority's notice. An older epoch than ours is stale, and changes nothing."""
        if call.handle.audience != self.world.room_to_key["authority"]:
            raise ContentError("only the authority announces revocations")
        if ask.epoch > self._epoch:
            self._take_revocations(ask)
        return Empty()

    # -- erasure -----------------------------------------------------------------------------

    async def on_erase(self, call: Call, ask: Erase) -> Record:
        """The authority's order. Answered when nothing of what it names is left here."""
        if call.handle.audience != self.world.room_to_key["authority"]:
            raise ContentError("only the authority has a room erase")
        return Erased(counts=await self.erase(ask))

    async def erase(self, ask: Erase) -> dict[str, int]:
        """Forget what `ask` names, on disk too; what went, by kind. Again is harmless. A room that
        keeps nothing of anybody has nothing to do. Raises StoreFault: ask again."""
        return {}

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

    async def tell_running(self, room: str, op: str, record: Record) -> bool:
        """Have another room take `record`, under this room's own handle; whether it runs. One that
        does not needs no telling, if what it is told it reads when it starts. Raises what a room
        that runs answers in place of taking it, and FaultError where nobody can say."""
        message = self._sealed(self.world.service_chain, room, op, record, request=self.name)
        try:
            reply = await self.world.mailbox.call(room, message)
        except (WorkerFault, Unavailable) as error:
            # The mailbox's own word, not the room's.
            log.info("%s: the %s room was not told %s: %s", self.name, room, op, error)
            return False
        open_reply(reply)
        return True

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
        message = self._sealed(chain, room, op, record, request=request)
        body = open_reply(await self.world.mailbox.call(room, message))
        return decode_record(reply, body, size_max=MESSAGE_BYTES_MAX)

    def _sealed(
        self, chain: tuple[bytes, ...], room: str, op: str, record: Record, *, request: str
    ) -> bytes:
        return seal(
            chain,
            self.world.signer,
            room=room,
            op=op,
            body=encode_record(record, size_max=MESSAGE_BYTES_MAX),
            ts_ns=self.world.clock.wall_ns(),
            nonce=self.world.entropy.draw(NONCE_BYTES),
            request_id=request,
        )
