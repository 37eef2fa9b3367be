"""What came from a Matrix server and is not answered yet: durable, each message once.

Messages and the position after them (`since`) are taken in one transaction: a crash before it asks
the server for them again, a crash after it finds them here. A message that was answered leaves a
mark, by which the same message is known when it comes again.

A message that waits belongs to the principal that was to answer it, and goes with it when that is
erased, or with the namespace in which it would have become a turn. What is kept then is nobody's
text. A mark is the server's name for an event and nothing beside it: without it the same message
would be answered after all when the server sends it again. The position is the account's, which the
operator logged in, and names no message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from actors.gateway.messages import Message, message_blocks
from protocol.ids import parse_any
from protocol.messages.erasure import Erase
from protocol.messages.ropes import NewBlock
from protocol.record import encode_record, ids_in, object_id
from store.tables import Change, Delete, Put, Tables, Trim

# Marks of answered messages that are kept: far more than a server ever sends again.
_ANSWERED_MAX: Final = 10_000
_POSITION: Final = "matrix"
_WAITING: Final = "matrix-waiting"
_ANSWERED: Final = "matrix-answered"
_SINCE: Final = b"since"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One message to answer. `event` and `room` are Matrix ids, `sender` a user's; `thread` is the
    event that its thread began with, None outside of threads. `principal` is the public key (32
    bytes) of who was to answer when it came, `namespace` where that principal works."""

    event: str
    room: str
    sender: str
    body: str
    principal: bytes
    namespace: str
    thread: str | None = None

    @property
    def place(self) -> str:
        """Where the conversation happens: a room, or a thread in it, has a session of its own."""
        return f"matrix:{self.room}" + ("" if self.thread is None else f"/{self.thread}")

    @property
    def input(self) -> list[NewBlock]:
        """What a turn gets of it."""
        return message_blocks([Message(role="user", content=self.body)])

    def goes_with(self, ask: Erase) -> bool:
        """Whether `ask` takes it: all of its principal or namespace, or an object that it says."""
        if self.principal in ask.principals:
            return True
        if not ask.takes(self.namespace):
            return False
        return ask.objects is None or self._says(ask.objects)

    def _says(self, objects: list[str]) -> bool:
        """Whether one of `objects` is its block or its text, as a turn would store them."""
        names = [parse_any(text).digest for text in objects]
        return any(
            digest == object_id(new.block).digest or digest in encode_record(new.block)
            for new in self.input
            for digest in names
        )


class Inbox:
    """The inbox in `tables`, of one account; one of them for each file. Every method is durable
    when it returns. Any thread may call."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._position = tables.keyed(_POSITION)
        self._waiting = tables.keyed(_WAITING)
        self._answered = tables.keyed(_ANSWERED)
        # One after the other: what is taken while others are erased would be left behind.
        self._changing = threading.Lock()
        self._erased: set[bytes] = set()

    @property
    def since(self) -> str | None:
        """Up to where the server was read; None: never."""
        found = self._position.get(_SINCE)
        return None if found is None else found.decode()

    def take(self, letters: Sequence[Letter], since: str) -> list[Letter]:
        """Keep `letters`, and that all before `since` was read; those that are new. Of who was
        erased since the inbox was opened none is kept: nobody would answer it."""
        with self._changing:
            fresh = {
                letter.event: letter
                for letter in letters
                if letter.principal not in self._erased
                and self._answered.get(letter.event.encode()) is None
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

    def is_waiting(self, letter: Letter) -> bool:
        """Whether `letter` is neither answered nor erased."""
        return self._waiting.get(letter.event.encode()) is not None

    def answered(self, letter: Letter) -> None:
        """The reply to `letter` is with the server."""
        self._tables.apply([*_done(letter), Trim(_ANSWERED, _ANSWERED_MAX)])

    def erase(self, ask: Erase) -> int:
        """Forget what waits and goes with `ask`; how many those were. Their bytes have yet to leave
        the disk (`Tables.scrub`)."""
        with self._changing:
            self._erased.update(ask.principals)
            gone = [letter for letter in self.waiting() if letter.goes_with(ask)]
            changes = [change for letter in gone for change in _done(letter)]
            self._tables.apply([*changes, Trim(_ANSWERED, _ANSWERED_MAX)])
            return len(gone)


def _done(letter: Letter) -> list[Change]:
    key = letter.event.encode()
    return [Put(_ANSWERED, key, b""), Delete(_WAITING, key)]


def traces(tables: Tables, ask: Erase, fingerprint: Callable[[str], str]) -> list[str]:
    """What of `ask` waits still; nothing, once it was erased. Its `objects` are here fingerprints
    of ids, which is what is kept of them."""
    found = [letter for letter in Inbox(tables).waiting() if _is_of(letter, ask, fingerprint)]
    return [f"the Matrix message {each.event}" for each in found]


def _is_of(letter: Letter, ask: Erase, fingerprint: Callable[[str], str]) -> bool:
    if ask.objects is None:
        return letter.goes_with(ask)
    said = {fingerprint(str(id)) for new in letter.input for id in ids_in(new)}
    return ask.takes(letter.namespace) and not said.isdisjoint(ask.objects)
