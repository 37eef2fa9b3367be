"""Asking the events room: sessions, and what to say when that room cannot be asked.

Only a request that names a session needs the room. While it is down everything else is served, and
such a request is told so in words that name the room and the way on.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

from actors.gateway.caller import Caller
from protocol.errors import Unavailable, WorkerFault
from protocol.messages.events import OpenSession, SessionRow
from protocol.record import Record

R = TypeVar("R", bound=Record)

EVENTS: Final = "events"
# Of these operations a conversation is read or kept.
_KEEPING: Final = frozenset({"begin_turn", "finish_turn"})
# Whose session it is where a transport opens one by itself.
PERSONA: Final = "assistant"


async def ask_events(caller: Caller, op: str, record: Record, reply: type[R]) -> R:
    """The answer of the events room, which keeps a turn's blocks through the ropes room.

    Raises what the room answers, and Unavailable while it cannot be asked.
    """
    delegate = ("ropes",) if op in _KEEPING else ()
    try:
        return await caller.ask(EVENTS, op, record, reply, delegate=delegate)
    except (Unavailable, WorkerFault) as error:
        raise Unavailable(
            f"sessions are not available now ({error.message}): try again in a moment; requests "
            "without a session are served"
        ) from error


async def open_session(
    caller: Caller,
    namespace: str,
    *,
    persona: str = PERSONA,
    scope: list[str] | None = None,
    since: Literal["beginning", "now"] = "beginning",
    place: str | None = None,
) -> SessionRow:
    """A new session, or the one at `place` (made on first use).

    `since` the beginning, by default: a conversation that begins now is told what happened so far,
    as far as the render budget reaches.
    """
    ask = OpenSession(namespace=namespace, persona=persona, since=since, scope=scope, place=place)
    return await ask_events(caller, "open_session", ask, SessionRow)
