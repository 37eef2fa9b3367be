"""`huginn` with an events room that breaks each of its promises, for the control of a crash test.

An append is acknowledged at once and written when somebody looks. An answer is told and never
written. The first turn of a session moves no marks. Of the second one they are written, and its
reminder would come in a transaction of its own, which never comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

import store.sqlite_events
from actors.cli.main import main
from actors.events import room
from actors.events.book import Book, Live
from actors.events.turns import Turn
from protocol.ids import SourceId
from store.events import LogRange, StoredEvent
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from store.tables import Change


class EarlyLogs(SqliteEventLogs):
    """Acknowledges an append before it is written."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._late: list[tuple[Sequence[StoredEvent], Sequence[Change]]] = []

    def append_soon(
        self, entries: Sequence[StoredEvent], changes: Sequence[Change] = ()
    ) -> Future[None]:
        self._late.append((entries, changes))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def range(self, source: SourceId) -> LogRange:
        while self._late:
            super().append_soon(*self._late.pop(0)).result()
        return super().range(source)


class LooseBook(Book):
    """Keeps no answer, moves no marks with a first turn, and with a second one nothing else."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        if turns[-1].state == "finished":
            live.put(turns[-1])
            return
        turn = turns[-1]
        if turn.number == 1:
            turn = msgspec.structs.replace(turn, marks_after=turn.marks_before)
        if turn.number == 2:
            turn = msgspec.structs.replace(turn, reminder=None, placed=[])
        await super().write(live, [*turns[:-1], turn], changes, **fields)
        if turn.number == 2:
            await asyncio.Event().wait()


if __name__ == "__main__":
    store.sqlite_events.SqliteEventLogs = EarlyLogs  # type: ignore[misc]
    room.Book = LooseBook  # type: ignore[attr-defined]
    main(prog_name="huginn")
