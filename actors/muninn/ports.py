"""What the muninn room needs of other rooms: who holds the outputs of a derivation now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from actors.room import Call, Room
from protocol.derivation import Output
from protocol.errors import NotVisible, RequestError
from protocol.ids import ChainId, ContextId, ObjectId, PageId, parse_any
from protocol.messages.ropes import GetObjects, Objects
from protocol.messages.worker import AskPages, HeldPages

ROPES: Final = "ropes"
WORKER: Final = "worker"


class Presence(Protocol):
    """Whether outputs are still there."""

    async def held(self, call: Call, outputs: Sequence[Output]) -> bool:
        """Whether the rooms that hold such outputs hold all of these for the caller, and what they
        hold hashes to its id. An error counts as no."""


class RoomPresence:
    """A `Presence` for `room`, which asks: ropes for contexts, the worker for pages, under the
    chains that came with the caller's message. A chain and a token stream are digests of what
    pages and contexts hold: nothing is kept under them, so nothing of them can be gone."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def held(self, call: Call, outputs: Sequence[Output]) -> bool:
        ids = [parse_any(output.id) for output in outputs]
        contexts = [each for each in ids if isinstance(each, ContextId)]
        pages = [each for each in ids if isinstance(each, PageId)]
        if contexts and not await self._contexts(call, contexts):
            return False
        chain = next((each for each in ids if isinstance(each, ChainId)), None)
        if not pages:
            return True
        return chain is not None and await self._pages(call, chain, pages)

    async def _contexts(self, call: Call, contexts: Sequence[ObjectId]) -> bool:
        ask = GetObjects(ids=[str(each) for each in contexts])
        try:
            found = await self._room.ask_for(call, ROPES, "get", ask, Objects)
        except NotVisible:
            return False
        for each, stored in zip(contexts, found.objects, strict=True):
            each.check(stored.body)
        return True

    async def _pages(self, call: Call, chain: ChainId, pages: list[PageId]) -> bool:
        try:
            found = await self._room.ask_for(
                call, WORKER, "pages", AskPages(chain=chain, pages=pages), HeldPages
            )
        except RequestError:
            return False
        return found.held
