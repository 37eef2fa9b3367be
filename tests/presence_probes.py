"""How a stranger tries to find out what somebody else has asked: every path, every operation, and
how it tries to change what is somebody else's. The probes are the same in every world.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from aiohttp import web

from protocol.blocks import Role
from protocol.messages import Empty
from protocol.messages.events import (
    BeginTurn,
    BegunTurn,
    FinishedTurn,
    FinishTurn,
    OpenSession,
    OutputBlock,
    SessionRow,
)
from protocol.messages.worker import Cancel
from tests.events_rooms import said
from tests.presence_deputy import DEPUTY, administering
from tests.presence_house import (
    ANSWER_TOKENS,
    MODEL,
    TEXTS,
    House,
    Request,
    chat,
    merged,
    responded,
)
from tests.presence_jobs import job_of, prompt_of
from tests.presence_messages import OTHER, Leaked, Message, inside, messages, taking_back
from tests.presence_seen import Different, Seen

# What stands for `{…}` in a path, by how the path begins; the longest beginning counts.
_KINDS = {
    "/huginn/v1/capabilities": ("cap",),
    "/huginn/v1/contexts": ("ctx",),
    "/huginn/v1/derivations": ("inv",),
    "/huginn/v1/erasures": ("erasure",),
    "/huginn/v1/publications": ("block",),
    "/huginn/v1/receipts": ("chatcmpl", "cmpl", "resp"),
    "/huginn/v1/sessions": ("session",),
    "/v1/responses": ("resp",),
}
_NAMES = {
    "/huginn/v1/keys": ("alice",),
    "/huginn/v1/sources": ("sled", "alice/sled"),
    "/v1/models": (MODEL,),
}
# Rooms that answer otherwise once the stranger did the same as the other.
_COMPUTING = ("ropes", "assembler", "muninn", "worker")
# What alice's next answer will be called.
_NEXT = "resp-that-is-to-come"


def own() -> Iterator[Request]:
    """What the stranger does in its own name: the same that the other did."""
    yield "POST", "/huginn/v1/sources", {"name": "sled"}
    yield "POST", "/huginn/v1/sources/sled/events", merged("0")
    yield "POST", "/huginn/v1/kinds", {"kind": "Seen", "schema": {"type": "object"}}
    yield "POST", "/huginn/v1/sessions", {"persona": "sally", "place": "well"}
    for texts in (TEXTS[:2], TEXTS[:4], TEXTS[:1] + TEXTS[3:]):
        yield "POST", "/v1/chat/completions", chat(*texts, huginn={"receipt": True})
    yield "POST", "/v1/chat/completions", chat(*TEXTS[:2], stream=True)
    text = {"model": MODEL, "prompt": TEXTS[1], "max_tokens": ANSWER_TOKENS, "seed": 7}
    yield "POST", "/v1/completions", text | {"temperature": 0}
    yield "POST", "/v1/responses", responded(TEXTS[1])
    yield "POST", "/huginn/v1/contexts", {"model": MODEL, "messages": chat(*TEXTS[:2])["messages"]}
    yield "POST", "/v1/tokenize", {"content": TEXTS[0]}
    yield "POST", "/v1/detokenize", {"tokens": [104, 105]}


def erased(who: str) -> Iterator[Request]:
    """What the stranger takes away of its own, and the other may have too."""
    copied = f"{who}/copied"
    yield "POST", "/v1/chat/completions", chat(*TEXTS[:2], huginn={"namespace": copied})
    yield "POST", "/huginn/v1/erasures", {"target": "namespace", "name": copied}
    yield "GET", "/huginn/v1/erasures", None


def linked(leaked: Leaked) -> Iterator[Request]:
    """Bodies that name what is another's."""
    context, session = leaked.one("ctx"), leaked.one("session")
    yield "POST", "/huginn/v1/contexts/diff", {"a": context, "b": context}
    yield "POST", "/v1/chat/completions", chat(TEXTS[3], huginn={"session": session})
    continued = responded(TEXTS[3]) | {"previous_response_id": leaked.one("resp")}
    yield "POST", "/v1/responses", continued
    for namespace in (OTHER, f"{OTHER}/inner"):
        yield "POST", "/v1/chat/completions", chat(TEXTS[3], huginn={"namespace": namespace})
    yield "POST", "/v1/chat/completions", chat(TEXTS[3], huginn={"session": "session-none"})
    seen = {"kind": f"{OTHER}.Seen", "subject": "0", "body": {}}
    yield "POST", "/huginn/v1/sources/sled/events", seen


def everything(app: web.Application, leaked: Leaked) -> Iterator[Request]:
    """Every path that there is, with what may stand in it; what takes away comes last."""
    routes = sorted(
        {
            (route.method, route.resource.canonical)
            for route in app.router.routes()
            if route.resource is not None and route.method not in ("HEAD", "*")
        },
        key=lambda each: (each[0] == "DELETE", each),
    )
    for method, path in routes:
        body: Any = None if method in ("GET", "DELETE") else {}
        for filled in _filled(path, leaked):
            yield method, filled, body


def _filled(path: str, leaked: Leaked) -> list[str]:
    hole = re.search(r"\{[^}]*\}", path)
    if hole is None:
        return [path]
    names = next((n for begin, n in _NAMES.items() if path.startswith(begin)), None)
    kinds = next((k for begin, k in _KINDS.items() if path.startswith(begin)), None)
    if names is None:
        names = tuple(leaked.some() if kinds is None else leaked(*kinds, most=3))
    return [path.replace(hole[0], name) for name in names]


async def probing(
    house: House, who: str, leaked: Leaked, seen: Seen, **headers: str
) -> AsyncGenerator[None, None]:
    """Ask all of it as `who`, a step after each answer. Raises Different for an answer to what is
    another's that is not no. `headers` go with what is no stranger's own.

    First as somebody who never asked for anything, so that nothing of it is its own by chance; then
    it does what the other did, and asks again.
    """
    house.later()
    for each in leaked.some():
        seen.known(each)
    if who == "wendy":
        async for _ in _said(house, who, inside(leaked), seen):
            yield
        return
    if who == DEPUTY:
        async for _ in _said(house, who, administering(leaked), seen):
            yield
    async for _ in _said(house, who, messages(who, leaked), seen):
        yield
    async for _ in _said(house, who, iter([taking_back(house.people[who].principal)]), seen):
        yield
    for request in own():
        await house.http(who, request, seen)
        yield
        await house.quiet()
    await house.told_again()
    again = (each._replace(foreign=False) for each in messages(who, leaked))
    computing = (each for each in again if each.room in _COMPUTING and each.op != "erase")
    async for _ in _said(house, who, computing, seen):
        yield
    for request in (*linked(leaked), *everything(house.app, leaked)):
        await house.http(who, request, seen, **headers)
        yield
    await house.quiet()
    for request in erased(who):
        await house.http(who, request, seen)
        yield
        await house.quiet()


async def _said(
    house: House, who: str, asked: Iterator[Message], seen: Seen
) -> AsyncGenerator[None, None]:
    for message in asked:
        answered = await house.message(
            who, message.room, message.op, message.record, seen, administer=message.administer
        )
        if answered and message.foreign:
            raise Different(f"{message.room} {message.op}: not refused, {seen.said[-1]}")
        yield


async def straight(house: House, who: str, response: str, seen: Seen) -> None:
    """An answer of the worker's own, past the gateway, which hides some of it once more."""
    blocks = [said(Role.USER, "what the worker itself says"), said(Role.MODEL, "is this")]
    prompt = await prompt_of(house, who, blocks)
    await house.message(who, "worker", "generate", job_of(house, prompt, response), seen)
    await house.quiet()


# -- what a stranger may not change ----------------------------------------------------------------


async def taking(house: House, who: str, leaked: Leaked) -> None:
    """What one can do to another within one's own: take the names of what was answered, stop what
    will be asked, and look on without ever having seen anything."""
    caller = house.people[who].principal.caller
    opened = OpenSession(namespace=who, persona="of-a-stranger", since="beginning")
    session = await caller.ask("events", "open_session", opened, SessionRow)
    for response in leaked("resp", "chatcmpl", most=3):
        begin = BeginTurn(
            namespace=who,
            response=response,
            wait_ns_max=0,
            session=session.id,
            input=[said(Role.USER, TEXTS[3])],
        )
        begun = await caller.ask("events", "begin_turn", begin, BegunTurn, delegate=("ropes",))
        finish = FinishTurn(
            namespace=who,
            session=session.id,
            turn=begun.turn,
            answer=OutputBlock(text="no", role=Role.MODEL),
        )
        await caller.ask("events", "finish_turn", finish, FinishedTurn, delegate=("ropes",))
    # And compute what the other computed first.
    for texts in (TEXTS[:2], TEXTS[:4]):
        await house.http(who, ("POST", "/v1/chat/completions", chat(*texts)), Seen())
    await house.quiet()
    await caller.ask("worker", "cancel", Cancel(response=_NEXT), Empty)


async def hers(house: House, leaked: Leaked, seen: Seen) -> None:
    """Let alice ask for all that is her own, go on, and leave her events to retention."""
    for each in leaked.some():
        seen.known(each)
    for request in everything(house.app, leaked):
        if request[0] == "GET":
            await house.http(OTHER, request, seen)
    await straight(house, OTHER, _NEXT, seen)
    for session in house.events._book.sessions():
        if session.namespace == OTHER:
            await house.http(OTHER, ("DELETE", f"/huginn/v1/sessions/{session.id}", None), seen)
    await house.events._sources.sweep()
    await house.http(OTHER, ("GET", "/huginn/v1/sources", None), seen)
