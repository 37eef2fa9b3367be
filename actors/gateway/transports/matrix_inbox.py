"""What came from a Matrix server and is not answered yet: durable, each message once.

Messages and the position after them (`since`) are taken in one transaction: a crash before it asks
the server for them again, a crash after it finds them here. A message that was answered leaves a
mark, by which the same message is known when it comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from store.tables import Change, Delete, Put, Tables, Trim

# Marks of answered messages that are kept: far more than a server ever sends again.
_ANSWERED_MAX: Final = 10_000
_POSITION: Final = "matrix"
_WAITING: Final = "matrix-waiting"
_ANSWERED: Final = "matrix-answered"
_SINCE: Final = b"since"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One message to answer. `event` and `room` are Matrix ids, `sender` a user's; `thread` is the
    event that its thread began with, None outside of threads."""

    event: str
    room: str
    sender: str
    body: str
    thread: str | None = None

    @property
    def place(self) -> str:
        """Where the conversation happens: a room, or a thread in it, has a session of its own."""
        return f"matrix:{self.room}" + ("" if self.thread is None else f"/{self.thread}")


class Inbox:
    """The inbox in `tables`, of one account. Every method is durable when it returns."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._position = tables.keyed(_POSITION)
        self._waiting = tables.keyed(_WAITING)
        self._answered = tables.keyed(_ANSWERED)

    @property
    def since(self) -> str | None:
        """Up to where the server was read; None: never."""
        found = self._position.get(_SINCE)
        return None if found is None else found.decode()

    def take(self, letters: Sequence[Letter], since: str) -> list[Letter]:
        """Keep `letters`, and that all before `since` was read; those that are new."""
        fresh = {
            letter.event: letter
            for letter in letters
            if self._answered.get(letter.event.encode()) is None
            and self._waiting.get(letter.event.encode()) is None
        }
        changes: list[Change] = [
            Put(_WAITING, event.encode(), msgspec.json.encode(letter))
            for event, letter in fresh.items()
        ]
        self._tables.apply([*changes, Put(_POSITION, _SINCE, since.encode())])
        return list(fresh.values())

    def waiting(self) -> list[Letter]:
        """What is not answered yet, in the order in which it came."""
        return [msgspec.json.decode(body, type=Letter) for _, body in self._waiting.items()]

    def answered(self, letter: Letter) -> None:
        """The reply to `letter` is with the server."""
        key = letter.event.encode()
        self._tables.apply(
            [Put(_ANSWERED, key, b""), Delete(_WAITING, key), Trim(_ANSWERED, _ANSWERED_MAX)]
        )
