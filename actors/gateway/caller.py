"""A caller: one principal while one of its requests is here, able to ask rooms on its behalf.

Every message to a room carries a handle of its own: attenuated from the principal's chain for one
room and one minute, its audience the principal's own key, and signed with that key. The principal's
domain stands in its chain from the root on, so no request can name another. A room that
has to ask another gets a delegation besides: a chain for that other room alone, with this room as
its audience and no more rights than that errand takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from actors.gateway.keys import KeyHolder
from actors.gateway.readiness import Readiness
from actors.gateway.space import Space
from actors.ports import Clock, Entropy, Mailbox
from protocol.capability import Capability, attenuate, decode_link
from protocol.caveats import Caveat, Scope, ServiceCaveat
from protocol.envelope import open_reply, seal
from protocol.errors import (
    AuthorityError,
    DiskFull,
    EncodingError,
    FaultError,
    RecordError,
    WorkerFault,
)
from protocol.limits import MESSAGE_BYTES_MAX, TURN_HANDLE_LIFETIME_NS
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Resource, Right
from protocol.signing import NONCE_BYTES

R = TypeVar("R", bound=Record)
Chain = tuple[bytes, ...]

# What a room may do in another for a caller. Absent: it may not be sent there.
DELEGATED_RIGHTS: Final[dict[str, frozenset[Right]]] = {
    "ropes": frozenset({Right.READ, Right.WRITE}),
    # Whether pages are held, for who may know what was computed.
    "worker": frozenset({Right.TELEMETRY}),
}
# Rooms without which requests are answered: that one is gone says nothing of the service.
_ASIDE: Final = frozenset({"events", "muninn"})
_HANDLES_MAX: Final = 10_000
# A handle with less than this left is made anew: a message that waits must still arrive in time.
_RENEW_NS: Final = TURN_HANDLE_LIFETIME_NS // 2


class Handles:
    """Handles made for principals, until they have to be renewed. Nothing in them is secret: who
    holds one and not the key that it names can do nothing with it. Kept from one request to the
    next, so that neither making them nor verifying them in the rooms is paid for on each."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Chain, str, str], tuple[Chain, int]] = OrderedDict()

    def find(self, parent: Chain, room: str, service: str, now_ns: int) -> Chain | None:
        """The handle under `parent` with which `room` (itself or the caller) asks `service`."""
        made = self._kept.get((parent, room, service))
        return made[0] if made is not None and made[1] - now_ns > _RENEW_NS else None

    def keep(self, parent: Chain, room: str, service: str, made: Chain, expires_ns: int) -> None:
        self._kept[parent, room, service] = made, expires_ns
        self._kept.move_to_end((parent, room, service))
        if len(self._kept) > _HANDLES_MAX:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Ports:
    """What a caller needs of the world, the same for all. `room_to_key`: each room's public key,
    for delegations. `readiness`: whether the worker can be asked. `handles`: those made so far.
    `space`: whether what was last to be kept found room."""

    clock: Clock
    entropy: Entropy
    mailbox: Mailbox
    room_to_key: Mapping[str, bytes]
    readiness: Readiness = field(default_factory=lambda: Readiness(ready=True))
    handles: Handles = field(default_factory=Handles)
    space: Space = field(default_factory=Space)


class Caller:
    """The principal behind one request. Lives as long as the request and what it set going."""

    def __init__(self, holder: KeyHolder, ports: Ports, request_id: str) -> None:
        self._row, self._signer = holder
        self._ports = ports
        self.request_id = request_id
        self._leaf: Capability = decode_link(self._row.chain[-1]).capability

    @property
    def principal(self) -> str:
        return self._row.principal

    @property
    def public(self) -> bytes:
        """The principal's public key (32 bytes)."""
        return self._row.public

    @property
    def namespace(self) -> str:
        """The path that the principal works in where a request names none."""
        return self._row.namespace

    @property
    def administers(self) -> bool:
        """Whether the principal has the handle that administers. Rooms check for themselves."""
        return self._row.admin_chain is not None

    @property
    def domain(self) -> str | None:
        """The computation-sharing domain that the principal's chain names."""
        return Scope.of(self._leaf.caveats).domain

    @property
    def readiness(self) -> Readiness:
        return self._ports.readiness

    @property
    def space(self) -> Space:
        return self._ports.space

    def has(self, right: Right) -> bool:
        """Whether the principal may do `right` where it works, for what is shown of an answer.
        Rooms check for themselves."""
        return right in self._leaf.rights

    def may_generate(self, profile: str) -> bool:
        """Whether the principal may have answers that `profile` computes, for what it is shown."""
        profiles = Scope.of(self._leaf.caveats).profiles
        return self.has(Right.GENERATE) and profiles is not None and profile in profiles

    @property
    def chain(self) -> Chain:
        """The principal's handle. There is no secret in it."""
        return tuple(self._row.chain)

    def give_out(
        self,
        audience: bytes,
        *,
        exp_ns: int,
        resource: Resource | None = None,
        rights: Iterable[Right] | None = None,
        caveats: Iterable[Caveat] = (),
    ) -> Chain:
        """A handle below the principal's own for the key `audience`. What is left out is as the
        principal has it. Raises as `attenuate` does."""
        return attenuate(
            self._row.chain,
            self._signer,
            audience=audience,
            nonce=self._ports.entropy.draw(NONCE_BYTES),
            resource=resource,
            rights=rights,
            caveats=caveats,
            exp_ns=exp_ns,
        )

    async def ask(
        self,
        room: str,
        op: str,
        record: Record,
        reply: type[R],
        *,
        delegate: tuple[str, ...] = (),
        administer: bool = False,
    ) -> R:
        """The answer of `room` to `op` with `record`; `delegate` names the rooms that it asks.

        `administer` asks with the handle that grants, revokes and operates.

        Raises what the room answers, WorkerFault or Unavailable as `Mailbox.call` does, and
        AuthorityError where the principal's chain allows no such handle.
        """
        message = self._message(room, op, record, delegate, administer=administer)
        with self._noticing_loss(room):
            answer = await self._ports.mailbox.call(room, message)
        return _decode(reply, self._opened(room, op, answer))

    async def stream(
        self, room: str, op: str, record: Record, reply: type[R]
    ) -> AsyncGenerator[R, None]:
        """The items of a stream; closing it stops the room. Raises as `ask` does."""
        # A port may give any async iterator; one with something to stop can be closed.
        items = cast("Any", self._ports.mailbox.stream(room, self._message(room, op, record)))
        try:
            while True:
                try:
                    with self._noticing_loss(room):
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                yield _decode(reply, self._opened(room, op, item))
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()

    @contextmanager
    def _noticing_loss(self, room: str) -> Iterator[None]:
        """What the mailbox itself raises of the worker is not an answer: the worker is gone."""
        try:
            yield
        except WorkerFault:
            if room not in _ASIDE:
                self._ports.readiness.lost()
            raise

    def _opened(self, room: str, op: str, answer: bytes) -> bytes:
        try:
            return open_reply(answer)
        except DiskFull:
            self._ports.space.lacked(f"{room} {op}")
            raise

    def _message(
        self,
        room: str,
        op: str,
        record: Record,
        delegate: tuple[str, ...] = (),
        *,
        administer: bool = False,
    ) -> bytes:
        ports = self._ports
        return seal(
            self._handle(room, room, self._signer.public, None, administer=administer),
            self._signer,
            room=room,
            op=op,
            body=encode_record(record, size_max=MESSAGE_BYTES_MAX),
            ts_ns=ports.clock.wall_ns(),
            nonce=ports.entropy.draw(NONCE_BYTES),
            request_id=self.request_id,
            delegations={other: self._delegation(room, other) for other in delegate},
        )

    def _delegation(self, room: str, other: str) -> Chain:
        """The chain with which `room` asks `other` for this caller."""
        rights = DELEGATED_RIGHTS[other].intersection(self._leaf.rights)
        if not rights:
            raise AuthorityError("right", f"this key may do nothing in '{other}'")
        return self._handle(room, other, self._ports.room_to_key[room], rights)

    def _handle(
        self,
        room: str,
        service: str,
        audience: bytes,
        rights: frozenset[Right] | None,
        *,
        administer: bool = False,
    ) -> Chain:
        granted = self._row.admin_chain if administer else self._row.chain
        if granted is None:
            raise AuthorityError("right", f"{self.principal} does not administer")
        parent = tuple(granted)
        now_ns = self._ports.clock.wall_ns()
        made = self._ports.handles.find(parent, room, service, now_ns)
        if made is not None:
            return made
        expires_ns = now_ns + TURN_HANDLE_LIFETIME_NS
        chain = attenuate(
            parent,
            self._signer,
            audience=audience,
            nonce=self._ports.entropy.draw(NONCE_BYTES),
            rights=rights,
            caveats=[ServiceCaveat(names=(service,))],
            exp_ns=expires_ns,
        )
        self._ports.handles.keep(parent, room, service, chain, expires_ns)
        return chain


def _decode(kind: type[R], body: bytes) -> R:
    try:
        return decode_record(kind, body, size_max=MESSAGE_BYTES_MAX)
    except (EncodingError, RecordError) as error:
        # Ours, not the client's: a room of another version answered.
        raise FaultError(
            f"a room's answer is not the record that was asked for: {error}"
        ) from error
