"""The gateway as a room: it listens, and its health is the worker's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from aiohttp import ClientSession

from actors.gateway.front import FrontRoom
from actors.gateway.readiness import Readiness
from actors.gateway.room import Gateway
from actors.ports import Mailbox
from store.memory_tables import MemoryTables
from tests.fake_rooms import Service


@dataclass
class Broken:
    """A mailbox whose first calls break in a way that no room ever does."""

    inner: Mailbox
    times: int

    async def call(self, room: str, message: bytes) -> bytes:
        if self.times:
            self.times -= 1
            raise ConnectionResetError("lost")
        return await self.inner.call(room, message)

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        return self.inner.stream(room, message)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def front(service: Service) -> AsyncIterator[str]:
    """The URL of a front room whose worker is down as it starts."""
    service.mailbox.down.add("worker")
    port = free_port()
    ports = replace(service.gateway.ports, readiness=Readiness(ready=False))
    gateway = Gateway(ports, MemoryTables().keyed("keys"), service.gateway.models, version="1")
    room = FrontRoom(service.world("gateway"), gateway, host="127.0.0.1", port=port)
    await room.start()
    yield f"http://127.0.0.1:{port}"
    await room.drain()


async def status_of(url: str, *, until: int) -> int:
    async with asyncio.timeout(60), ClientSession() as http:
        while True:
            async with http.get(f"{url}/health") as response:
                if response.status == until:
                    return response.status
            await asyncio.sleep(0.02)


@pytest.mark.req("SRV-7")
async def test_health_follows_the_worker(service: Service, front: str) -> None:
    assert await status_of(front, until=503) == 503
    service.mailbox.down.clear()
    assert await status_of(front, until=200) == 200


async def test_no_failure_of_a_probe_ends_the_probing(service: Service) -> None:
    port = free_port()
    ports = replace(service.gateway.ports, readiness=Readiness(ready=True))
    gateway = Gateway(ports, MemoryTables().keyed("keys"), service.gateway.models, version="1")
    # The room's own start asks the authority first; what breaks is the probe.
    world = service.world("gateway")
    mailbox = Broken(world.mailbox, 0)
    room = FrontRoom(replace(world, mailbox=mailbox), gateway, host="127.0.0.1", port=port)
    await room.start()
    mailbox.times = 1
    assert await status_of(f"http://127.0.0.1:{port}", until=503) == 503
    assert await status_of(f"http://127.0.0.1:{port}", until=200) == 200
    await room.drain()
