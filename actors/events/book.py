"""The book of sessions: what is kept of them and their turns, and the one who writes in it.

Sessions, turns, leases and the names of responses are keyed tables beside the source logs, so the
beginning of a turn (the turn, its reminder, its marks, the session's counters) is one transaction.
What is remembered here is what the tables say: a write that fails, or whose answer is lost, is
read back before anything builds on it. A session is changed under its lock, by steps that run to
their end even if the request that began them goes away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar

import msgspec

from actors.events.alignment import Anchor
from actors.events.turns import Turn, is_live
from protocol.errors import FaultError, HuginnError, NotVisible
from protocol.messages.events import Mark, SessionRow
from protocol.record import Record, decode_record, encode_record
from store.commit import settled
from store.tables import Change, Delete, Put, Tables

log = logging.getLogger("huginn.events")

SESSIONS: Final = "sessions"
TURNS: Final = "turns"
LEASES: Final = "leases"
RESPONSES: Final = "responses"
ARCHIVE: Final = "archive"
_LIVE_MAX: Final = 1000
_VIEWS_MAX: Final = 4
NOT_VISIBLE: Final = "no such session or turn in this view"

T = TypeVar("T")


class Session(Record):
    """One session. `start` are the marks before its first turn, `marks` those of its newest turn,
    which is `head` and number `turns` (0: none yet). Counters are over all its turns. `alone`: the
    holder that opened it, where that may not read the namespace: nobody else finds it by place."""

    v: Literal[1]
    id: str
    namespace: str
    persona: str
    principal: bytes
    created_ns: int
    used_ns: int
    turns: int
    start: list[Mark]
    marks: list[Mark]
    injected: int
    gaps: int
    dropped: int
    scope: list[str] | None = None
    place: str | None = None
    head: str | None = None
    alone: bytes | None = None

    @property
    def spot(self) -> str | None:
        """What it is found by, if it is at a place."""
        return None if self.place is None else spot(self.place, self.alone)


class Live:
    """A session with its turns, as the tables have them. `changed` is set, and made anew, when a
    turn begins or ends; `users` hold the lock or wait for it."""

    def __init__(self, tables: Tables, session: Session) -> None:
        self._tables = tables
        self.users = 0
        # Turns that were given up when the disk had no room to say so.
        self._given_up: set[int] = set()
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()
        self.session = session
        self._load()

    def reload(self) -> None:
        """Read everything back; NotVisible if the session is not there any more."""
        row = self._tables.keyed(SESSIONS).get(self.session.id.encode())
        if row is None:
            raise NotVisible(NOT_VISIBLE)
        self.session = decode_record(Session, row)
        self._load()

    def _load(self) -> None:
        session = self.session
        self.turns: list[Turn] = []
        self.leases: dict[int, int] = {}
        self._views: OrderedDict[int, dict[int, Anchor]] = OrderedDict()
        turns, leases = self._tables.keyed(TURNS), self._tables.keyed(LEASES)
        for number in range(1, session.turns + 1):
            row = turns.get(turn_key(session.id, number))
            if row is None:
                raise FaultError(f"session {session.id} lacks its turn {number}")
            turn = decode_record(Turn, row)
            self.turns.append(turn)
            if turn.state == "open":
                renewed = leases.get(turn_key(session.id, number))
                self.leases[number] = int.from_bytes(renewed, "big") if renewed else turn.lease_ns

    def turn(self, number: int) -> Turn:
        return self.turns[number - 1]

    def put(self, turn: Turn) -> None:
        """`turn` as it was written: a new one, or another state of one that is there."""
        self.turns[turn.number - 1 : turn.number] = [turn]
        if turn.state != "open":
            self.leases.pop(turn.number, None)
            self._given_up.discard(turn.number)

    def named(self, id: str) -> Turn:
        """The turn with that id; NotVisible."""
        found = next((turn for turn in reversed(self.turns) if turn.id == id), None)
        if found is None:
            raise NotVisible(NOT_VISIBLE)
        return found

    @property
    def seen(self) -> list[Mark]:
        """The marks of the session; of one that is a holder's alone, as of that one's own last
        turn, whoever went on with it."""
        session = self.session
        if session.alone is None:
            return session.marks
        own = (turn.marks_after for turn in reversed(self.turns) if turn.begun_by == session.alone)
        return next(own, session.start)

    def keyed(self, key: str) -> Turn | None:
        """The newest turn that was begun with that key."""
        return next((turn for turn in reversed(self.turns) if turn.key == key), None)

    def give_up(self, number: int) -> None:
        """Nobody waits for turn `number` any more, whatever its row says. After a restart that is
        so when its lease has run out."""
        self._given_up.add(number)
        self.tell()

    def is_live(self, turn: Turn, now_ns: int) -> bool:
        return turn.number not in self._given_up and is_live(
            turn, self.leases.get(turn.number, turn.lease_ns), now_ns
        )

    def children(self, number: int | None) -> Iterator[Turn]:
        return (turn for turn in self.turns if turn.parent == number)

    def lineage(self, number: int | None) -> list[Turn]:
        """Turn `number` and those that it continues, oldest first."""
        found: list[Turn] = []
        while number is not None:
            turn = self.turn(number)
            found.append(turn)
            number = turn.parent
        return found[::-1]

    def view(self, number: int | None) -> dict[int, Anchor]:
        """Where reminders stood as of turn `number`: by the turn that they are of, oldest first."""
        if number is None:
            return {}
        if number not in self._views:
            placed: dict[int, Anchor] = {}
            for turn in self.lineage(number):
                placed.update({each.turn: each.anchor for each in turn.placed})
            self._views[number] = placed
            while len(self._views) > _VIEWS_MAX:
                self._views.popitem(last=False)
        return dict(sorted(self._views[number].items()))

    def tell(self) -> None:
        """Wake those who wait for a turn to end."""
        self.changed.set()
        self.changed = asyncio.Event()


class Book:
    """Every session of one file; the turns of `live_max` of them are held in memory, and of all
    that are in use. All of its methods belong to one event loop."""

    def __init__(self, tables: Tables, *, live_max: int = _LIVE_MAX) -> None:
        self._tables = tables
        self._live_max = live_max
        self._sessions: dict[str, Session] = {}
        self._places: dict[tuple[str, str], str] = {}
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._running: set[asyncio.Task[Any]] = set()
        for _, row in tables.keyed(SESSIONS).items():
            self._index(decode_record(Session, row))

    def _index(self, session: Session) -> None:
        self._sessions[session.id] = session
        if session.spot is not None:
            self._places[session.namespace, session.spot] = session.id

    # -- finding -----------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """All of them, oldest first."""
        return list(self._sessions.values())

    def at_place(self, namespace: str, place: str) -> Session | None:
        """The newest session at `place`, which is a `spot`."""
        found = self._places.get((namespace, place))
        return None if found is None else self._sessions[found]

    def live(self, namespace: str, id: str) -> Live:
        """The session `id` of `namespace`; NotVisible."""
        session = self._sessions.get(id)
        if session is None or session.namespace != namespace:
            raise NotVisible(NOT_VISIBLE)
        live = self._live.get(id)
        if live is None:
            live = self._live[id] = Live(self._tables, session)
            for other in list(self._live)[: max(0, len(self._live) - self._live_max)]:
                if not self._live[other].users:
                    del self._live[other]
        self._live.move_to_end(id)
        return live

    @asynccontextmanager
    async def held(self, namespace: str, id: str) -> AsyncIterator[Live]:
        """The session under its lock; NotVisible, also if it went while waiting for it."""
        live = self.live(namespace, id)
        live.users += 1
        try:
            async with live.lock:
                if id not in self._sessions:
                    raise NotVisible(NOT_VISIBLE)
                yield live
        finally:
            live.users -= 1

    def answered(self, namespace: str, response: str) -> tuple[str, int]:
        """The session and the turn of a response in `namespace`; NotVisible."""
        row = self._tables.keyed(RESPONSES).get(response_key(namespace, response))
        if row is None:
            raise NotVisible(NOT_VISIBLE)
        return response_of(row)

    # -- writing -----------------------------------------------------------------------------

    async def undivided(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. It runs to its end even if who waits for it is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HuginnError):
            log.error("a step of a session failed: %r", error)

    async def ended(self) -> None:
        """Wait until no step runs."""
        await asyncio.gather(*list(self._running), return_exceptions=True)

    async def write(
        self, live: Live, turns: Sequence[Turn], changes: Iterable[Change] = (), **fields: Any
    ) -> None:
        """Keep `turns` of `live`, `fields` of its session changed, and `changes`, as one. Durable
        when it returns; on an error the session is read back. Under the session's lock."""
        session = live.session
        number = max([session.turns, *(turn.number for turn in turns)])
        session = msgspec.structs.replace(session, turns=number, **fields)
        rows: list[Change] = [
            Put(TURNS, turn_key(session.id, turn.number), encode_record(turn)) for turn in turns
        ]
        rows += [
            Delete(LEASES, turn_key(session.id, turn.number))
            for turn in turns
            if turn.state != "open" and turn.number in live.leases
        ]
        rows.append(Put(SESSIONS, session.id.encode(), encode_record(session)))
        try:
            await settled(self._tables.apply_soon([*rows, *changes]))
        except BaseException:
            live.reload()
            self._sessions[session.id] = live.session
            raise
        self._sessions[session.id] = live.session = session
        for turn in turns:
            live.put(turn)
        live.tell()

    async def renew(self, live: Live, number: int, lease_ns: int) -> None:
        """Keep the lease of an open turn. Under the session's lock."""
        key = turn_key(live.session.id, number)
        await settled(self._tables.apply_soon([Put(LEASES, key, lease_ns.to_bytes(8, "big"))]))
        live.leases[number] = lease_ns

    async def unname(self, live: Live, response: str) -> None:
        """Forget what a response was called; its turn stays. Under the session's lock."""
        key = response_key(live.session.namespace, response)
        await settled(self._tables.apply_soon([Delete(RESPONSES, key)]))

    async def add(self, session: Session, changes: Iterable[Change] = ()) -> None:
        """Keep a new session."""
        row = Put(SESSIONS, session.id.encode(), encode_record(session))
        await settled(self._tables.apply_soon([row, *changes]))
        self._index(session)

    async def remove(self, live: Live, changes: Iterable[Change] = ()) -> None:
        """Forget a session, its turns and what they were called. Under its lock."""
        session = live.session
        rows: list[Change] = [Delete(SESSIONS, session.id.encode())]
        for turn in live.turns:
            key = turn_key(session.id, turn.number)
            rows += [Delete(TURNS, key), Delete(LEASES, key)]
            rows.append(Delete(RESPONSES, response_key(session.namespace, turn.response)))
        await settled(self._tables.apply_soon([*rows, *changes]))
        self._sessions.pop(session.id, None)
        self._live.pop(session.id, None)
        # A later one may be there by now.
        if session.spot and self._places.get((session.namespace, session.spot)) == session.id:
            del self._places[session.namespace, session.spot]
        live.tell()

    def archived(self, namespace: str, place: str) -> Session | None:
        """The session that was collected at `place`, which is a `spot`, if one was."""
        row = self._tables.keyed(ARCHIVE).get(archive_key(namespace, place))
        return None if row is None else decode_record(Session, row)


def turn_key(session: str, number: int) -> bytes:
    return session.encode() + b"/" + number.to_bytes(8, "big")


def session_of(key: bytes) -> str:
    """The session of a turn's key."""
    return key[: -len(turn_key("", 0))].decode()


def response_key(namespace: str, response: str) -> bytes:
    return namespace.encode() + b"\0" + response.encode()


def response_row(session: str, number: int) -> bytes:
    return session.encode() + number.to_bytes(8, "big")


def response_of(row: bytes) -> tuple[str, int]:
    """The session and the number of the turn that a response's row names."""
    return row[:-8].decode(), int.from_bytes(row[-8:], "big")


def spot(place: str, alone: bytes | None) -> str:
    """What sessions at `place` are found by: those of one holder `alone` by itself, and those of
    all who may read by the place. No place has a zero in it."""
    return place if alone is None else f"{place}\0{alone.hex()}"


def archive_key(namespace: str, place: str) -> bytes:
    return namespace.encode() + b"\0" + place.encode()


def session_row(session: Session) -> SessionRow:
    """The session as it is shown."""
    return SessionRow(**{field: getattr(session, field) for field in SessionRow.__struct_fields__})
