"""A known id of every kind of object, and every place that takes one.

Kinds are those of `protocol/ids.py`, the words that drawn ids begin with, and names. Of each kind
there is one of alice's that exists and one that nobody has. A place is a message or a request that
names one of alice's: those of the other probes, and those that any id may stand in. What alice
herself is answered tells whether a place takes a kind at all: where it is the same for whichever id
she gives, it takes none. A source's key stands in no list: it is told, and is no id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import structs

from actors.authority.erasures import fingerprint
from protocol.blocks import ContextBlock, Role
from protocol.derivation import invocation_id, open_evidence
from protocol.ids import (
    PREFIX_TO_KIND,
    ArgumentsId,
    BlockId,
    ChainId,
    ContextId,
    NodeId,
    ObjectId,
    PageId,
    SequenceId,
    parse_any,
)
from protocol.messages.authority import Enroll
from protocol.messages.erasure import RequestErasure
from protocol.messages.events import FinishTurn, OutputBlock, Preview
from protocol.messages.muninn import Report
from protocol.messages.ropes import GetObjects, ReadSequence, SequenceBlocks
from protocol.messages.worker import AskPages, AskReceipt, Cancel, HeldPages, Receipt, Settle
from protocol.record import Record, object_id
from protocol.rope.tree import prefix_id
from tests.events_rooms import said
from tests.presence_deputy import DEPUTY, administering
from tests.presence_house import TEXTS, House, Request
from tests.presence_jobs import job_of, prompt_of
from tests.presence_messages import OTHER, Leaked, Message, inside, messages
from tests.presence_probes import linked
from tests.presence_seen import Seen

# As long as hers: an answer's length is told.
_NOBODY = "annie"
# Of these alice has none.
UNMADE = {"receipt": "receipts are kept by response id: their own id is reserved"}
# Of these she has some, and no message takes them.
UNTAKEN = {
    "args": "the digest of a message's body, inside its signature: no message names another",
    "contract": "the product's and the installation's, registered by body: in nobody's store",
    "event": "events are asked for by source and number",
    "evidence": "evidence is asked for by the invocation that it is of",
    "msg": "the items of a response are asked for by the response",
    "params": "parameters are told with an invocation, and asked for by it",
    "prefix": "a boundary is told, and nothing is found by it",
    "profile": "a profile is asked for by its name, which is the installation's",
    "req": "a request is told its id, and nothing is found by it",
    "source": "a source is asked for by its name",
    "state": "the digest of all pages of a prompt: pages are asked for by chain and page",
    "tokens": "a digest inside an invocation: nothing is found by it",
    "transform": "the product's own: in nobody's store",
}
Ask = Message | Request
_ERASING = 4


class Pair(NamedTuple):
    """The same asked with an id of alice's and with one that nobody has."""

    kind: str
    known: Ask
    nobodys: Ask


async def known(made: House, leaked: Leaked) -> dict[str, str]:
    """By kind, an id of alice's that exists: the newest that she was told, or what follows from
    what she did."""
    found = {each: leaked.one(each) for each in leaked.kinds()}
    del found["public"]
    found["name"] = OTHER
    caller = made.people[OTHER].principal.caller
    entry = made.rooms.post.asked("muninn", "report", Report)[0].entries[0]
    found["evidence"] = str(object_id(open_evidence(entry.evidence or b"")))
    found["inv"] = str(invocation_id(entry.invocation))
    # The newest is the operator's.
    found["erasure"] = leaked("erasure")[0]
    found["args"] = str(ArgumentsId.of(made.rooms.post.sent[0].body))
    receipt = await caller.ask("worker", "receipt", AskReceipt(response=found["chatcmpl"]), Receipt)
    assert receipt.state_digest is not None
    found["state"] = str(receipt.state_digest)
    whole = ReadSequence(sequence=SequenceId.parse(found["seq"]), start=0)
    read = await caller.ask("ropes", "read", whole, SequenceBlocks, delegate=())
    found["prefix"] = str(prefix_id(read.count, NodeId(read.root.digest)))
    # Which page is which chain's nobody was told: one that is held.
    pairs = product(leaked("page", most=1000), leaked("chain", most=1000))
    for page, chain in pairs:
        ask = AskPages(chain=ChainId.parse(chain), pages=[PageId.parse(page)])
        if (await caller.ask("worker", "pages", ask, HeldPages)).held:
            return found | {"chain": chain, "page": page}
    raise AssertionError("no page of hers is held")


def nobodys(kind: str, id: str) -> str:
    """An id like `id` that nobody has."""
    if kind == "name":
        return _NOBODY
    if kind in PREFIX_TO_KIND:
        return str(PREFIX_TO_KIND[kind].of(b"nobody's"))
    word = re.match(r"[a-z]+[-_]", id)
    assert word is not None
    # A letter that both alphabets have, and a draw does not repeat.
    return word[0] + "a" * (len(id) - word.end())


async def pairs(made: House, who: str, leaked: Leaked, ids: dict[str, str]) -> list[Pair]:
    """All that `who` can ask with an id of alice's: what leaves all as it is comes first."""
    asks: list[Ask] = [*_anywhere(who, ids), *_holes(made, ids), *_named(ids)]
    kept = Leaked(list(ids.values()), leaked.handles)
    asks += [*messages(who, kept), *inside(kept), *linked(kept)]
    if who == DEPUTY:
        asks += administering(kept)
    asks += await _jobs(made, who, ids)
    found: dict[str, Pair] = {}
    for ask in asks:
        for kind, id in ids.items():
            # A name is somebody's once: whoever enrolls learns whether it is.
            if kind == "name" and isinstance(ask, Message) and isinstance(ask.record, Enroll):
                continue
            other = _swapped(ask, id, nobodys(kind, id))
            if other != ask:
                found[repr((kind, ask))] = Pair(kind, ask, other)
    return sorted(found.values(), key=lambda pair: _rank(pair.known))


def _rank(ask: Ask) -> int:
    """When it is asked: what is answered under an id, stopped or taken away is so ever after."""
    match ask:
        case Message(op="generate"):
            return 1
        case Message(op="cancel"):
            return 2
        case Message(op="take_back" | "remove_session" | "forget_response") | ("DELETE", _, _):
            return 3
        case Message(op="request_erasure") | ("POST", "/huginn/v1/erasures", _):
            return _ERASING
        case ("POST", path, _) if path.endswith("/cancel"):
            return 2
    return 0


def _anywhere(who: str, ids: dict[str, str]) -> Iterator[Message]:
    """What takes any id of an object."""
    for kind, id in ids.items():
        if kind in PREFIX_TO_KIND:
            yield Message("ropes", "get", GetObjects(ids=[id]))
            for namespace in {OTHER, who}:
                ask = RequestErasure(target="object", name=id, namespace=namespace)
                yield Message("authority", "request_erasure", ask)


def _holes(made: House, ids: dict[str, str]) -> Iterator[Request]:
    """Every path that takes an id or a name, with one of every kind."""
    for route in made.app.router.routes():
        path = "" if route.resource is None else route.resource.canonical
        if route.method in ("HEAD", "*") or "{" not in path:
            continue
        for id in ids.values():
            body: Any = None if route.method in ("GET", "DELETE") else {}
            yield route.method, re.sub(r"\{[^}]*\}", quote(id), path), body


def _named(ids: dict[str, str]) -> Iterator[Ask]:
    """What the other probes do not ask."""
    session, turn, context = ids["session"], ids["turn"], ContextId.parse(ids["ctx"])
    yield "GET", f"/huginn/v1/sessions/{session}/prompt-context?parent={turn}", None
    for target in ("domain", "principal", "namespace"):
        yield "POST", "/huginn/v1/erasures", {"target": target, "name": OTHER}
    yield Message("events", "preview", Preview(namespace=OTHER, session=session, parent=turn))
    answer = OutputBlock(text="x", role=Role.MODEL)
    finish = FinishTurn(namespace=OTHER, session=session, turn=turn, answer=answer, context=context)
    yield Message("events", "finish_turn", finish)
    for kind in ("resp", "chatcmpl", "cmpl"):
        yield Message("worker", "cancel", Cancel(response=ids[kind]))
        settle = Settle(response=ids[kind], segments=[], context=context)
        yield Message("worker", "settle", settle)
    page = AskPages(chain=ChainId.parse(ids["chain"]), pages=[PageId.parse(ids["page"])])
    yield Message("worker", "pages", page)


async def _jobs(made: House, who: str, ids: dict[str, str]) -> list[Message]:
    """Answers of one's own that name what is hers."""
    prompt = await prompt_of(made, "operator", [said(Role.USER, TEXTS[3])])
    job = job_of(made, prompt, "resp-of-a-kind")
    first, *others = job.segments
    segments = [structs.replace(first, block=BlockId.parse(ids["block"])), *others]
    named = structs.replace(job, context=ContextId.parse(ids["ctx"]), segments=segments)
    # Once before: who is shown what was warm is shown it for both of a pair.
    await made.message(who, "worker", "generate", job, Seen())
    await made.quiet()
    responses = [ids[kind] for kind in ("resp", "chatcmpl", "cmpl")]
    return [
        Message("worker", "generate", structs.replace(named, response=response))
        for response in ("resp-of-a-kind", *responses)
    ]


def _swapped(value: Any, old: str, new: str) -> Any:
    """`value` with the id `new` wherever `old` stands."""
    match value:
        case ContextBlock():
            # It is named by what it is.
            return value
        case str():
            # A path, or an id.
            return re.sub(rf"(?<![a-z.]){re.escape(old)}(?![a-z0-9.])", new, value)
        case ObjectId():
            return parse_any(new) if str(value) == old else value
        case Record():
            fields = {each: _swapped(getattr(value, each), old, new) for each in _fields(value)}
            return structs.replace(value, **fields)
        case dict():
            return {name: _swapped(each, old, new) for name, each in value.items()}
        case Message():
            return value._replace(record=_swapped(value.record, old, new))
        case list():
            return [_swapped(each, old, new) for each in value]
        case tuple():
            return tuple(_swapped(each, old, new) for each in value)
    return value


def _fields(record: Record) -> tuple[str, ...]:
    return type(record).__struct_fields__


async def answers(made: House, who: str, pair: Pair, ids: dict[str, str]) -> tuple[str, str]:
    """What `who` is answered to both, less the id itself."""
    id = ids[pair.kind]
    both = (id, nobodys(pair.kind, id))
    found = []
    first = (pair.known,) if _rank(pair.known) == _ERASING else ()
    # An erasure takes along what was computed: it is the same only when that is gone.
    for ask in (*first, pair.known, pair.nobodys):
        seen = Seen()
        if isinstance(ask, Message):
            await made.message(who, ask.room, ask.op, ask.record, seen, administer=ask.administer)
            if ask.op == "generate":
                await made.quiet()
        else:
            await made.http(who, ask, seen)
        ((_, text),) = seen.said
        for each in both:
            # Of an erased object a fingerprint of its id is told.
            text = text.replace(each, "<id>").replace(fingerprint(each), "<fingerprint>")
        found.append(text)
    return found[-2], found[-1]
