"""Somebody in Matrix rooms: says things, and reads what the others said."""

from __future__ import annotations

import asyncio
from typing import Any

import nio

from tests.matrix.synapse import User


class Person:
    """One account and its client. `close` it at the end."""

    def __init__(self, url: str, account: User) -> None:
        self.id = account.id
        self._client = nio.AsyncClient(url, account.id)
        self._client.access_token = account.token
        self._client.user_id = account.id

    async def room(self, *others: str) -> str:
        """A new room, with `others` invited."""
        made = await self._client.room_create(invite=list(others))
        assert isinstance(made, nio.RoomCreateResponse), made
        return str(made.room_id)

    async def join(self, room: str) -> None:
        assert isinstance(await self._client.join(room), nio.JoinResponse)

    async def until_joined(self, room: str, other: str) -> None:
        """Waits until `other` is in `room`."""
        async with asyncio.timeout(60):
            while other not in [member.user_id for member in await self._members(room)]:
                await asyncio.sleep(0.1)

    async def _members(self, room: str) -> list[Any]:
        answer = await self._client.joined_members(room)
        assert isinstance(answer, nio.JoinedMembersResponse), answer
        return list(answer.members)

    async def say(self, room: str, text: str, **more: Any) -> str:
        """The id of the message."""
        content = {"msgtype": "m.text", "body": text, **more}
        sent = await self._client.room_send(room, "m.room.message", content)
        assert isinstance(sent, nio.RoomSendResponse), sent
        return str(sent.event_id)

    async def said(self, room: str, by: str) -> list[dict[str, Any]]:
        """The contents of all messages of `by` in `room`, oldest first."""
        found: list[dict[str, Any]] = []
        start: str | None = None
        while True:
            page = await self._client.room_messages(
                room, start, limit=100, direction=nio.MessageDirection.back
            )
            assert isinstance(page, nio.RoomMessagesResponse), page
            found += [
                event.source["content"]
                for event in page.chunk
                if event.sender == by and isinstance(event, nio.RoomMessageText)
            ]
            if not page.chunk or page.end is None:
                return found[::-1]
            start = page.end

    async def until_said(self, room: str, by: str, count: int) -> list[dict[str, Any]]:
        """What `by` said, once it is `count` messages."""
        async with asyncio.timeout(120):
            while len(found := await self.said(room, by)) < count:
                await asyncio.sleep(0.1)
        return found

    async def close(self) -> None:
        await self._client.close()
