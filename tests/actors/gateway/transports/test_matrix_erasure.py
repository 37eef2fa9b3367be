"""A Matrix transport whose principal is erased: what waits goes, and it ends; others go on.

The message waits because the server takes no reply: whatever is told to the sender in between, it
is in the inbox until it is erased.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from actors.gateway.front import FrontRoom
from actors.gateway.transports.matrix import MatrixTransport, transaction
from actors.gateway.transports.matrix_account import Account
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from protocol.messages.erasure import Erase
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from tests.fake_rooms import Service
from tests.matrix.homeserver import ALICE, BOT, ROOM, Homeserver, homeserver
from tests.scripted_worker import ANSWER

SECRET = "nobody-shall-find"
ENDED = "answers no longer"


@dataclass
class Talk:
    """A service with an account on a server, and the file of its gateway in a folder."""

    service: Service
    server: Homeserver
    folder: Path
    key: str
    inbox: Inbox
    tables: SqliteTables
    transport: MatrixTransport

    def again(self) -> MatrixTransport:
        """The transport of another start, over what is stored."""
        return transport(self.service, self.server, self.key, Inbox(self.tables))

    def marked(self, mark: str = SECRET) -> list[str]:
        """The gateway's files, log included, in which `mark` is."""
        files = sorted(self.folder.iterdir())
        return [path.name for path in files if mark.encode() in path.read_bytes()]

    async def erase(self, target: str, name: str) -> dict[str, Any]:
        """What the gateway counted in an erasure that the operator asked for and that is done."""
        headers = {"Authorization": f"Bearer {self.service.operator_key}"}
        body = {"target": target, "name": name}
        async with (
            ClientSession(self.service.base_url, headers=headers) as http,
            http.post("/huginn/v1/erasures", json=body) as response,
        ):
            row = await response.json()
            assert response.status == 200, row
        counts: dict[str, Any] = row["rooms"]["gateway"]
        return counts


def transport(service: Service, server: Homeserver, key: str, inbox: Inbox) -> MatrixTransport:
    account = Account(url=server.url, user=BOT, device="D", token="t", allow=(ALICE,))
    return MatrixTransport(service.gateway, account, key, inbox)


@asynccontextmanager
async def talking(
    service: Service, folder: Path, key: str, kind: type[Inbox] = Inbox
) -> AsyncIterator[Talk]:
    """The transport answers with `key` and has looked; the gateway's room takes orders."""
    async with homeserver() as server:
        tables = SqliteTables(Database(folder / "gateway.sqlite"))
        inbox = kind(tables)
        made = transport(service, server, key, inbox)
        front = FrontRoom(
            service.world("gateway"),
            service.gateway,
            host="127.0.0.1",
            port=0,
            transports=[made],
            inbox=inbox,
            tables=tables,
        )
        service.mailbox.rooms["gateway"] = front
        await made.start()
        try:
            # The first look takes the position alone; what is said from the second on is for us.
            await server.until_looked(2)
            yield Talk(service, server, folder, key, inbox, tables, made)
        finally:
            server.replying.set()
            await front.drain()


async def said(talk: Talk, text: str) -> None:
    """Alice says `text`; it was answered, and waits for the server to take the reply."""
    talk.server.replying.clear()
    sent = talk.server.sent
    await talk.server.say(text)
    await talk.server.until_sent(sent + 1)


async def ended(transport: MatrixTransport) -> None:
    async with asyncio.timeout(60):
        while transport._tasks:
            await asyncio.sleep(0.01)


async def answered_alone(talk: Talk, text: str) -> None:
    """Alice says `text`, and has a reply to that and to nothing before: a room has one turn after
    the other, so one to what was said before would have come first."""
    event = await talk.server.say(text)
    letter = Letter(
        event=event, room=ROOM, sender=ALICE, body=text, principal=b"", namespace="client"
    )
    await talk.server.until_replied(1)
    ((replied, reply),) = talk.server.replies.items()
    assert replied == transaction(letter)
    assert reply.endswith(ANSWER.strip())


def endings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(ENDED in record.getMessage() for record in caplog.records)


@pytest.mark.req("AUT-8")
async def test_with_its_principal_what_waits_goes_and_the_transport_ends(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(service, tmp_path, service.client_key) as talk:
        await said(talk, f"{SECRET}: one")
        assert [letter.body for letter in talk.inbox.waiting()] == [f"{SECRET}: one"]
        assert talk.marked()
        assert await talk.erase("principal", "client") == {"keys": 1, "letters": 1}
        assert talk.inbox.waiting() == []
        assert talk.marked() == []
        # It ended in the erasure, and said so once; nobody looks any more.
        assert not talk.transport._tasks
        assert endings(caplog) == 1
        looks = talk.server.looks
        # What comes later is for nobody, after another start too.
        talk.server.replying.set()
        await talk.server.say(f"{SECRET}: two")
        again = talk.again()
        await again.start()
        await ended(again)
        await again.stop()
        assert endings(caplog) == 2
        assert talk.server.looks == looks
        assert talk.server.replies == {}
        assert talk.inbox.waiting() == []
        assert talk.marked() == []
        assert SECRET not in caplog.text


@pytest.mark.req("AUT-8")
async def test_the_erasure_of_another_takes_nothing(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(service, tmp_path, service.operator_key) as talk:
        await said(talk, f"{SECRET}: one")
        assert await talk.erase("principal", "client") == {"keys": 1, "letters": 0}
        assert talk.marked()
        talk.server.replying.set()
        await talk.server.until_replied(1)
        assert endings(caplog) == 0


@pytest.mark.req("AUT-8")
async def test_with_its_namespace_what_waits_goes_and_the_transport_goes_on(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(service, tmp_path, service.client_key) as talk:
        await said(talk, f"{SECRET}: one")
        # The second waits for its turn in the room, behind the first.
        await talk.server.say(f"{SECRET}: two")
        async with asyncio.timeout(60):
            while len(talk.inbox.waiting()) < 2:
                await asyncio.sleep(0.01)
        assert await talk.erase("namespace", "client") == {"keys": 0, "letters": 2}
        assert talk.marked() == []
        talk.server.replying.set()
        await answered_alone(talk, "and now?")
        assert endings(caplog) == 0


class Late(Inbox):
    """The first messages are erased between their being kept and anybody's hearing of them."""

    def take(self, letters: Sequence[Letter], since: str) -> list[Letter]:
        fresh = super().take(letters, since)
        if fresh and since == "1":
            ask = Erase(domains=[], namespaces=["client"], spared=[], principals=[], names=[])
            assert self.erase(ask) == len(fresh)
        return fresh


@pytest.mark.req("AUT-8")
async def test_what_was_erased_before_it_was_heard_of_is_not_answered(
    service: Service, tmp_path: Path
) -> None:
    async with talking(service, tmp_path, service.client_key, Late) as talk:
        await talk.server.say(f"{SECRET}: one")
        async with asyncio.timeout(60):
            while talk.inbox.since != "1":
                await asyncio.sleep(0.01)
        await answered_alone(talk, "and now?")
        assert len(service.worker.asked) == 1


async def test_with_a_key_that_is_revoked_it_ends_by_itself(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "huginn")
    async with talking(service, tmp_path, service.client_key) as talk:
        assert service.gateway.keys.remove("client") == 1
        await talk.server.say(f"{SECRET}: one")
        await ended(talk.transport)
        assert endings(caplog) == 1
        assert talk.inbox.waiting() == []
        assert talk.marked() == []
