"""The gateway as a room: it listens, its health is the worker's, and it forgets who was erased."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import ClientSession

from actors.gateway.front import FrontRoom
from actors.gateway.readiness import Readiness
from actors.gateway.room import Gateway
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from actors.ports import Mailbox
from protocol.messages.erasure import Erase
from store.memory_tables import MemoryTables
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
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


class Leaving:
    """A transport that only hears of erasures; `kept` is what waited whenever it did."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.kept: list[list[str]] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def leave_off(self) -> None:
        self.kept.append([letter.body for letter in self.inbox.waiting()])


def letters_of(gateway: Gateway) -> dict[str, Letter]:
    """A letter for each principal, that says whose it is."""
    return {
        row.principal: Letter(
            event=f"${row.principal}",
            room="!room:host",
            sender="@somebody:host",
            body=f"a secret for {row.principal}",
            principal=row.public,
            namespace=row.namespace,
        )
        for row in gateway.keys.principals()
    }


@pytest.mark.req("AUT-8")
async def test_an_erasure_takes_keys_and_letters_off_the_disk_and_again_is_harmless(
    service: Service, tmp_path: Path
) -> None:
    gateway, path = service.gateway, tmp_path / "gateway.sqlite"
    tables = SqliteTables(Database(path))
    letters = letters_of(gateway)
    Inbox(tables).take(list(letters.values()), "s")
    ask = Erase(
        domains=["client"],
        namespaces=["client"],
        spared=["operator"],
        principals=[letters["client"].principal],
        names=["client"],
    )

    def marked(mark: str) -> list[str]:
        files = [each for each in tmp_path.iterdir() if mark.encode() in each.read_bytes()]
        return [each.name for each in files]

    def front() -> tuple[FrontRoom, Leaving]:
        # Another start each time: nothing is remembered but what the file says.
        inbox = Inbox(tables)
        heard = Leaving(inbox)
        made = FrontRoom(
            service.world("gateway"),
            gateway,
            host="127.0.0.1",
            port=0,
            transports=[heard],
            inbox=inbox,
            tables=tables,
        )
        return made, heard

    assert marked("a secret for client")
    # The keys went, and everything ended: the letter waits for somebody who is not there.
    assert gateway.keys.remove("client") == 1
    room, heard = front()
    assert await room.erase(ask) == {"keys": 0, "letters": 1}
    # By the time that transports hear of it, it is gone.
    assert heard.kept == [["a secret for operator"]]
    assert marked("a secret for client") == []
    assert marked("a secret for operator") == ["gateway.sqlite"]
    room, _ = front()
    assert await room.erase(ask) == {"keys": 0, "letters": 0}
    assert [letter.body for letter in Inbox(tables).waiting()] == ["a secret for operator"]
    await room.drain()


async def test_without_an_inbox_there_are_keys_alone(service: Service) -> None:
    room = FrontRoom(service.world("gateway"), service.gateway, host="127.0.0.1", port=0)
    ask = Erase(domains=[], namespaces=[], spared=[], principals=[], names=["client", "nobody"])
    assert await room.erase(ask) == {"keys": 1}
    assert await room.erase(ask) == {"keys": 0}
