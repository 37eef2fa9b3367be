"""`/huginn/v1/sessions`: make, list, show, look ahead, and forget.

A session is a conversation, whatever carries it. Looking ahead (`prompt-context`) says what a turn
that began now would be told, and moves no mark.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import one_answer
from actors.gateway.http.extension import HuginnFields, extension
from actors.gateway.http.parse import query_integer, read_body
from actors.gateway.http.state import CALLER
from actors.gateway.sessions import PERSONA, ask_events, open_session
from protocol.errors import ContentError
from protocol.messages import Empty
from protocol.messages.events import (
    AskSession,
    Gap,
    ListSessions,
    Mark,
    Preview,
    Previewed,
    SessionRow,
    Sessions,
    TurnRow,
    Turns,
)

Json = dict[str, Any]
_ALL: Final = "all"
_TOKENS_MAX: Final = 1_000_000
_NS_PER_S: Final = 10**9


class SessionRequest(msgspec.Struct, kw_only=True):
    """`scope`: `all`, or names of sources. `since`: whether what lies in their logs already is
    news to the session (`beginning`, the default) or not (`now`). `place`: where a transport's
    conversation happens; there is one session for each, made on first use."""

    persona: str = PERSONA
    scope: str | list[str] | None = None
    since: Literal["beginning", "now"] | None = None
    place: str | None = None
    huginn: HuginnFields | None = None


async def create_session(request: web.Request) -> web.Response:
    """Make a session, or give the one at its place again."""
    body = await read_body(request, SessionRequest)
    more = extension(request, body.huginn)
    if isinstance(body.scope, str) and body.scope != _ALL:
        raise ContentError("scope is 'all', or a list of names of sources", param="scope")
    row = await open_session(
        request[CALLER],
        more.namespace,
        persona=body.persona,
        scope=body.scope if isinstance(body.scope, list) else None,
        since=body.since or "beginning",
        place=body.place,
    )
    return json_response(session_json(row))


async def list_sessions(request: web.Request) -> web.Response:
    """Every session at or below the namespace."""
    ask = ListSessions(namespace=extension(request, None).namespace)
    found = await ask_events(request[CALLER], "sessions", ask, Sessions)
    return json_response({"data": [session_json(row) for row in found.sessions]})


async def show_session(request: web.Request) -> web.Response:
    """A session and its turns, oldest first."""
    found = await _turns(request)
    return json_response(
        session_json(found.session) | {"turns": [turn_json(turn) for turn in found.turns]}
    )


async def show_marks(request: web.Request) -> web.Response:
    """The newest entry of each source that the session has seen, by the source's id."""
    row = (await _turns(request)).session
    return json_response({"id": row.id, "head": row.head, "marks": _marks(row.marks)})


async def show_prompt_context(request: web.Request) -> web.Response:
    """What a turn that began now would be told; `?parent=TURN`: one that continued that turn;
    `?tokens_max=N`: in at most so many tokens."""
    ask = Preview(
        namespace=extension(request, None).namespace,
        session=request.match_info["id"],
        parent=request.query.get("parent"),
        tokens_max=query_integer(request, "tokens_max", 0, 1, _TOKENS_MAX) or None,
    )
    with one_answer():
        seen = await ask_events(request[CALLER], "preview", ask, Previewed)
    return json_response(
        {
            "id": ask.session,
            "text": seen.text,
            "tokens": seen.tokens,
            "events": seen.events,
            "folded": seen.folded,
            "gaps": [_gap(gap) for gap in seen.gaps],
            "marks": _marks(seen.marks),
        }
    )


async def delete_session(request: web.Request) -> web.Response:
    """Forget a session: its turns, its marks and its place. Right `erase`."""
    await ask_events(request[CALLER], "remove_session", _asked(request), Empty)
    return json_response({"id": request.match_info["id"], "deleted": True})


def session_json(row: SessionRow) -> Json:
    """A session as it is shown. Times are Unix seconds."""
    return {
        "id": row.id,
        "namespace": row.namespace,
        "persona": row.persona,
        "scope": _ALL if row.scope is None else row.scope,
        "place": row.place,
        "created_at": row.created_ns / _NS_PER_S,
        "used_at": row.used_ns / _NS_PER_S,
        "head": row.head,
        "turns_count": row.turns,
        "marks": _marks(row.marks),
        "injected": row.injected,
        "gaps": row.gaps,
        "dropped": row.dropped,
    }


def turn_json(turn: TurnRow) -> Json:
    """A turn as it is listed: which one it continues, what it told, where its answer is."""
    return {
        "id": turn.id,
        "number": turn.number,
        "parent": turn.parent,
        "state": turn.state,
        "began_at": turn.began_ns / _NS_PER_S,
        "response": turn.response,
        "context_id": None if turn.context is None else str(turn.context),
        "sequence_id": None if turn.sequence is None else str(turn.sequence),
        "injected": turn.injected,
        "reminders": turn.reminders,
    }


async def _turns(request: web.Request) -> Turns:
    with one_answer():
        return await ask_events(request[CALLER], "turns", _asked(request), Turns)


def _asked(request: web.Request) -> AskSession:
    return AskSession(namespace=extension(request, None).namespace, id=request.match_info["id"])


def _marks(marks: list[Mark]) -> dict[str, int]:
    return {str(mark.source): mark.seq for mark in marks}


def _gap(gap: Gap) -> Json:
    return {
        "source": str(gap.source),
        "from": gap.first,
        "to": gap.last,
        "count": gap.count,
        "cause": gap.cause,
    }
