"""What a stranger asks to find out what somebody else has asked: every path, every operation.

A stranger knows everything but the contents: all the ids that the other was ever told, and what the
other may have said. The probes are the same in every world. `foreign` are messages that name what
is another's and do something there: whatever they are answered, it must be no.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from protocol import cbor
from protocol.blocks import Role
from protocol.ids import BlockId, ChainId, ContextId, InvocationId, PageId, SequenceId
from protocol.messages import Empty
from protocol.messages.assembler import Assemble, DiffContexts, Show, ShowTree
from protocol.messages.events import (
    AbandonTurn,
    AddSource,
    AppendEvents,
    AskResponse,
    AskSession,
    BeginTurn,
    FinishTurn,
    Follow,
    ListSessions,
    ListSources,
    NewEvent,
    OpenSession,
    OutputBlock,
    Preview,
    ReadEvents,
    RegisterKind,
    RemoveSource,
    RenewTurn,
)
from protocol.messages.muninn import Look
from protocol.messages.ropes import Commit, Entry, GetObjects, ReadSequence, ReadTree
from protocol.messages.worker import AskPages, AskReceipt, Cancel, Settle
from protocol.record import Record
from tests.events_rooms import said
from tests.presence_house import (
    ANSWER_TOKENS,
    MODEL,
    PROFILE,
    TEXTS,
    House,
    Request,
    Seen,
    chat,
    merged,
    responded,
)

OTHER = "alice"
# How many ids of a kind are tried.
_TRIED = 2
# What stands for `{…}` in a path, by how the path begins; the longest beginning counts.
_KINDS = {
    "/huginn/v1/contexts": ("ctx",),
    "/huginn/v1/sessions": ("session",),
    "/huginn/v1/receipts": ("chatcmpl", "cmpl", "resp"),
    "/huginn/v1/derivations": ("inv",),
    "/huginn/v1/publications": ("block",),
    "/v1/responses": ("resp",),
}
_NAMES = {
    "/huginn/v1/keys": ("alice",),
    "/huginn/v1/sources": ("sled", "alice/sled"),
    "/v1/models": (MODEL,),
}


class Leaked:
    """Every id that was told to the other, by kind, in the order of telling."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._kind_to_ids: dict[str, list[str]] = {}
        for each in dict.fromkeys(ids):
            self._kind_to_ids.setdefault(re.split("[-:_]", each)[0], []).append(each)

    def __call__(self, *kinds: str, most: int = _TRIED) -> list[str]:
        return [each for kind in kinds for each in self._kind_to_ids.get(kind, [])[:most]]

    def one(self, kind: str) -> str:
        return self._kind_to_ids[kind][0]

    def some(self) -> list[str]:
        """One of each kind."""
        return [found[0] for found in self._kind_to_ids.values()]


class Message(NamedTuple):
    """One message to a room. `foreign`: it names what is another's, and must be refused."""

    room: str
    op: str
    record: Record
    foreign: bool = True


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


def everything(app: web.Application, leaked: Leaked) -> Iterator[Request]:
    """Every path that there is, with what may stand in it; those that take away come last."""
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


def messages(who: str, leaked: Leaked) -> Iterator[Message]:
    """What the key of `who` can say to the rooms themselves, past the gateway."""
    contexts = [ContextId.parse(each) for each in leaked("ctx")]
    sequences = [SequenceId.parse(each) for each in leaked("seq")]
    blocks = [BlockId.parse(each) for each in leaked("block")]
    objects = leaked("ctx", "seq", "block")
    for each in objects:
        yield Message("ropes", "get", GetObjects(ids=[each]))
    yield Message("ropes", "commit", Commit(namespace=OTHER, keep=0, blocks=[], entries=[]))
    entries = [Entry(block=blocks[0], content_bytes=len(TEXTS[0]))]
    # A sequence of the stranger's own, over blocks of another's.
    mine = Commit(namespace=who, keep=0, blocks=[], entries=entries)
    yield Message("ropes", "commit", mine)
    for sequence in sequences:
        yield Message("ropes", "read", ReadSequence(sequence=sequence, start=0))
        yield Message("ropes", "tree", ReadTree(sequence=sequence))
    for context in contexts:
        yield Message("assembler", "show", Show(context=context, tokens=True))
        yield Message("assembler", "tree", ShowTree(context=context))
        yield Message("assembler", "diff", DiffContexts(a=context, b=context))
    yield Message("assembler", "assemble", _assembling())
    for inv in leaked("inv", most=6):
        yield Message("muninn", "look", Look(invocations=[InvocationId.parse(inv)]), foreign=False)
    for response in leaked("chatcmpl", "cmpl", "resp"):
        yield Message("worker", "receipt", AskReceipt(response=response))
    for chain in leaked("chain", most=4):
        for page in leaked("page", most=4):
            ask = AskPages(chain=ChainId.parse(chain), pages=[PageId.parse(page)])
            yield Message("worker", "pages", ask, foreign=False)
    cancel = Cancel(response=leaked.one("chatcmpl"))
    yield Message("worker", "cancel", cancel, foreign=False)
    yield Message("worker", "settle", Settle(response="none", segments=[]))
    yield Message("worker", "info", Empty(), foreign=False)
    for room in ("worker", "muninn"):
        yield Message(room, "charge", Empty(), foreign=False)
    yield from _events(leaked)


def _assembling() -> Assemble:
    return Assemble(
        namespace=OTHER,
        profile=PROFILE,
        policy="refuse",
        tokens_max=1000,
        keep_turns=0,
        store=True,
        blocks=[said(Role.USER, TEXTS[3])],
    )


def _events(leaked: Leaked) -> Iterator[Message]:
    session, response = leaked.one("session"), leaked.one("resp")
    turn = leaked("turn")[0] if leaked("turn") else f"{session}/1"
    event = NewEvent(kind="note", subject="0", body=cbor.encode({"text": "x"}))
    ours = {"namespace": OTHER}
    asks: list[tuple[str, Record, bool]] = [
        ("add_source", AddSource(**ours, name="sled"), True),
        ("append", AppendEvents(**ours, source="sled", events=[event]), True),
        ("read", ReadEvents(**ours, source="sled", after=0, limit=10), True),
        ("follow", Follow(**ours), True),
        ("follow", Follow(**ours, sources=["sled"]), True),
        ("sources", ListSources(**ours), False),
        ("kinds", ListSources(**ours), False),
        ("register_kind", RegisterKind(**ours, kind=f"{OTHER}.Other", schema=b"{}"), True),
        ("sessions", ListSessions(**ours), False),
        ("open_session", OpenSession(**ours, persona="sally", since="now", place="well"), True),
        ("turns", AskSession(**ours, id=session), True),
        ("preview", Preview(**ours, session=session), True),
        ("response", AskResponse(**ours, response=response), True),
        ("begin_turn", _turn(session), True),
        ("renew_turn", RenewTurn(**ours, session=session, turn=turn), True),
        ("finish_turn", _finished(session, turn), True),
        ("abandon_turn", AbandonTurn(**ours, session=session, turn=turn), True),
        ("forget_response", AskResponse(**ours, response=response), True),
        ("remove_session", AskSession(**ours, id=session), True),
        ("remove_source", RemoveSource(**ours, name="sled"), True),
    ]
    for op, record, foreign in asks:
        yield Message("events", op, record, foreign)


def _turn(session: str) -> BeginTurn:
    return BeginTurn(
        namespace=OTHER,
        response="resp-of-a-stranger",
        wait_ns_max=10**6,
        session=session,
        input=[said(Role.USER, TEXTS[3])],
    )


def _finished(session: str, turn: str) -> FinishTurn:
    answer = OutputBlock(text="x", role=Role.MODEL)
    return FinishTurn(namespace=OTHER, session=session, turn=turn, answer=answer)


async def probed(
    house: House, who: str, leaked: Leaked, wanted: Seen | None = None
) -> tuple[Seen, list[str]]:
    """What `who` is answered to all of it, and which foreign messages were not refused. Raises
    Different at the first answer that is not what `wanted` has.

    First as somebody who never asked for anything, so that nothing of it is its own by chance; then
    it does what the other did, and asks again.
    """
    seen, granted = Seen(None if wanted is None else wanted.said), []
    house.later()
    for each in leaked.some():
        seen.known(each)
    for message in messages(who, leaked):
        answered = await house.message(who, message.room, message.op, message.record, seen)
        if answered and message.foreign:
            granted.append(f"{message.room} {message.op}")
    for request in own():
        await house.http(who, request, seen)
        await house.quiet()
    requests = [*linked(leaked), *everything(house.app, leaked)]
    for request in sorted(requests, key=lambda each: each[0] == "DELETE"):
        await house.http(who, request, seen)
    for message in messages(who, leaked):
        if message.room != "events":
            await house.message(who, message.room, message.op, message.record, seen)
    await house.quiet()
    return seen, granted
