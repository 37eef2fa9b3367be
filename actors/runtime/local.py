"""The embedded shell: rooms in one process, the worker in its own, no Ray."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

from actors.authority.room import AuthorityRoom
from actors.room import Room
from actors.ropes.room import RopesRoom
from actors.runtime.child import Child
from actors.runtime.plan import ROOMS, Plan
from actors.runtime.supervisor import Running, Supervisor
from actors.runtime.wiring import build_room
from protocol.envelope import decode_envelope
from protocol.errors import Unavailable, WorkerFault

log = logging.getLogger("huginn.local")

WORKER = "worker"


class LocalMailbox:
    """Rooms by name: those of this process by a call, the worker over its socket."""

    def __init__(self) -> None:
        self.rooms: dict[str, Room] = {}
        self.child: Child | None = None

    async def call(self, room: str, message: bytes) -> bytes:
        if room == WORKER:
            return await self._worker().port.call(message)
        return await self._room(room).receive(message)

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        if room == WORKER:
            return self._worker().port.stream(message)
        return self._room(room).stream(message)

    def _worker(self) -> Child:
        if self.child is None or self.child.port.closed.is_set():
            raise WorkerFault("the worker is being started; try again in a few seconds")
        return self.child

    def _room(self, name: str) -> Room:
        found = self.rooms.get(name)
        if found is None:
            raise Unavailable(f"the {name} room does not run")
        return found


class _Rooms:
    """The rooms of this process as one entry, for what the worker asks: routed by envelope."""

    name = "rooms"

    def __init__(self, mailbox: LocalMailbox) -> None:
        self._mailbox = mailbox

    async def receive(self, message: bytes) -> bytes:
        return await self._mailbox.call(decode_envelope(message).room, message)

    def stream(self, message: bytes) -> AsyncIterator[bytes]:
        return self._mailbox.stream(decode_envelope(message).room, message)

    async def drain(self) -> None:
        """Nothing of its own."""


class EmbeddedShell:
    """All rooms of one plan. `start` returns when the gateway listens; a worker may still load."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.mailbox = LocalMailbox()
        # Short, and private to this user: socket paths are limited to 107 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix="huginn-"))
        self._supervisor = Supervisor(WORKER, self._start_worker)

    async def start(self) -> None:
        try:
            for name in ROOMS:
                if name != WORKER:
                    self.mailbox.rooms[name] = build_room(self._plan, name, self.mailbox)
            for name in ROOMS:
                if name == WORKER:
                    self._supervisor.begin()
                else:
                    await self.mailbox.rooms[name].start()
        except BaseException:
            await self.stop()
            raise

    async def _start_worker(self) -> Running:
        child = await Child.start(self._plan, WORKER, _Rooms(self.mailbox), self._sockets)
        self.mailbox.child = child
        try:
            # It asked what is revoked, and what is public, when it started; what came after found
            # nobody to tell.
            await cast(AuthorityRoom, self.mailbox.rooms["authority"]).tell(WORKER)
            await cast(RopesRoom, self.mailbox.rooms["ropes"]).tell(WORKER)
        except BaseException:
            await child.stop()
            raise
        return child

    async def stop(self) -> None:
        """Stop taking requests, finish what runs, stop everything that was started."""
        await self._drain("gateway")
        await self._supervisor.stop()
        for name in reversed(ROOMS):
            await self._drain(name)
        shutil.rmtree(self._sockets, ignore_errors=True)

    async def _drain(self, name: str) -> None:
        room = self.mailbox.rooms.pop(name, None)
        if room is not None:
            try:
                await room.refusals.settle()
                await room.drain()
            except Exception:
                # The others have files to close all the same.
                log.exception("the %s room could not be drained", name)
