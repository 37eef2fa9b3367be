"""The gateway as a room among rooms: it listens, and it knows whether the worker can be asked.

Its service handle asks the worker for counters every second or so: that answer is what `/health`
reports, and nothing else of a worker is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

from aiohttp import web

from actors.gateway.http.app import make_app, serve
from actors.gateway.room import Gateway
from actors.gateway.transports.matrix_inbox import Inbox
from actors.room import Room, World
from protocol.errors import HuginnError, StoreFault
from protocol.messages import Empty, Operation
from protocol.messages.erasure import Erase
from protocol.messages.worker import Stats
from store.commit import settled
from store.tables import Delete, Put, Tables

log = logging.getLogger("huginn.gateway")

_PROBE_SECONDS_STARTING: Final = 0.2
_PROBE_SECONDS: Final = 2.0
# What is written to see whether there is room again: more than the last bits of a full disk.
_TRIED: Final = "space"
_TRIED_BYTES: Final = 256 * 1024
# A worker that is computing still answers at once: its counters do not wait for the engine.
_PROBE_SECONDS_MAX: Final = 10.0


class Transport(Protocol):
    """A way in and out that is no request to us: it asks somebody else what to answer."""

    async def start(self) -> None:
        """Begin; returns at once, and fails for nothing that may pass."""

    async def stop(self) -> None:
        """Stop, with what is not answered kept for the next start."""

    async def leave_off(self) -> None:
        """Something was erased, keys among it perhaps: stop working on what is not kept any more,
        and for whose key is gone. Harmless where nothing changed, and after `stop`."""


class FrontRoom(Room):
    """Listens on `host`:`port` from `start` until `drain`. `worker` names the room to probe;
    `transports` run beside; `inbox` is what waits to be answered by them, also while none runs.
    Owns `tables`, in which all of that lies, and closes them last."""

    operations: ClassVar[dict[str, Operation]] = {}

    def __init__(
        self,
        world: World,
        gateway: Gateway,
        *,
        host: str,
        port: int,
        worker: str = "worker",
        transports: Sequence[Transport] = (),
        inbox: Inbox | None = None,
        tables: Tables | None = None,
    ) -> None:
        super().__init__("gateway", world)
        self._gateway = gateway
        gateway.on_refusal = self.refusals.put
        if gateway.presented is not None:
            gateway.presented.is_revoked = self._is_revoked
        self._readiness = gateway.ports.readiness
        self._host = host
        self._port = port
        self._worker = worker
        self._transports = transports
        self._inbox = inbox
        self._tables = tables
        self._runner: web.AppRunner | None = None
        self._probe: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._runner, self._port = await serve(make_app(self._gateway), self._host, self._port)
        self._probe = asyncio.create_task(self._keep_probing(), name="probe the worker")
        for transport in self._transports:
            await transport.start()

    async def erase(self, ask: Erase) -> dict[str, int]:
        """The keys of these principals, and the letters that wait for them to answer."""
        # In this order: without a key nothing new is taken for it, and without its row no letter
        # is worked on again, whatever a transport was doing.
        counts = {"keys": sum(self._gateway.keys.remove(name) for name in ask.names)}
        if self._inbox is not None:
            counts["letters"] = await asyncio.to_thread(self._inbox.erase, ask)
        for transport in self._transports:
            await transport.leave_off()
        if self._tables is not None:
            await asyncio.to_thread(self._tables.scrub)
        return counts

    async def _keep_probing(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PROBE_SECONDS_MAX):
                    await self.ask_as_self(self._worker, "stats", Empty(), Stats)
            except (HuginnError, TimeoutError):
                self._readiness.lost()
                await asyncio.sleep(_PROBE_SECONDS_STARTING)
            except Exception:
                # Whatever a mailbox raises: without a probe nobody would ever see the worker again.
                log.exception("the worker could not be asked")
                self._readiness.lost()
                await asyncio.sleep(_PROBE_SECONDS)
            else:
                self._readiness.gained()
                await self._try_space()
                await self._readiness.until_lost(_PROBE_SECONDS)

    async def _try_space(self) -> None:
        """See whether there is room on the disk again, in case nobody else has anything to keep."""
        space = self._gateway.ports.space
        if self._tables is None or not space.is_full:
            return
        try:
            await settled(self._tables.apply_soon([Put(_TRIED, b"room", bytes(_TRIED_BYTES))]))
            await settled(self._tables.apply_soon([Delete(_TRIED, b"room")]))
        except StoreFault:
            return
        space.found()

    async def drain(self) -> None:
        for transport in self._transports:
            await transport.stop()
        if self._probe is not None:
            self._probe.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probe
        if self._runner is not None:
            await self._runner.cleanup()
        if self._tables is not None:
            self._tables.close()
