"""Books of sessions that break what the events room relies on, for the controls of crash tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.events.book import Book, Live
from actors.events.turns import Turn


class MarksApart(Book):
    """Moves the marks first, and then tells."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        bare = [msgspec.structs.replace(turn, reminder=None, placed=[]) for turn in turns]
        await super().write(live, bare, (), **fields)
        await super().write(live, turns, changes, **fields)


class TellsApart(Book):
    """Tells first, and then moves the marks."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        still = [msgspec.structs.replace(turn, marks_after=turn.marks_before) for turn in turns]
        await super().write(live, still, changes, **{**fields, "marks": live.session.marks})
        await super().write(live, turns, changes, **fields)


class Forgetful(Book):
    """Acknowledges an answer before it is written."""

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Any = (), **fields: Any
    ) -> None:
        if turns[-1].state == "finished":
            live.put(turns[-1])
            return
        await super().write(live, turns, changes, **fields)
