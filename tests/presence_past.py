"""What alice asked, in the world in which she has a past: everything that leaves something behind.

Long ago she began, went away for a month, and came back. Of that time are things that are no more:
a source that was removed, a session that was collected, an erasure.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from protocol.derivation import invocation_id, open_evidence
from protocol.ids import InvocationId
from protocol.messages.authority import HandOut, TakeBack, TakenBack
from protocol.messages.muninn import Report
from tests.presence_house import (
    ANSWER_TOKENS,
    DAY_NS,
    MODEL,
    TEXTS,
    House,
    Request,
    chat,
    merged,
    responded,
)
from tests.presence_messages import OTHER, Leaked, given_out
from tests.presence_seen import ID, Seen

_EACH_ONCE = ("event", "chat", "session", "response", "text")
# Longer than a session is kept that nobody uses, and shorter than what is given out below.
_AWAY_NS = 31 * DAY_NS
_LIFETIME_S = 300 * 86_400
_DRAWS = 10**6


def long_ago() -> Iterator[Request]:
    """What she asked before she went away."""
    yield "POST", "/huginn/v1/erasures", {"target": "namespace", "name": f"{OTHER}/gone"}
    for name in ("sled", "raft"):
        yield "POST", "/huginn/v1/sources", {"name": name}
        yield "POST", f"/huginn/v1/sources/{name}/events", merged("long ago")
    yield "POST", "/huginn/v1/sessions", {"persona": "sally", "place": "ford", "since": "now"}
    yield "DELETE", "/huginn/v1/sources/raft", None
    yield "POST", "/huginn/v1/capabilities", {"lifetime_s": _LIFETIME_S}
    yield "GET", f"/huginn/v1/derivations/{InvocationId.of(b'never executed')}", None


def past(random: Random, steps: int) -> Iterator[Request]:
    """What she asked since: a random workload."""
    for number in range(steps):
        count = random.choice((2, 2, 4))
        texts = TEXTS[:count]
        kind = random.choice(("chat", "chat", "stream", "text", "response", "session", "event"))
        if number < len(_EACH_ONCE):
            kind = _EACH_ONCE[number]
        match kind:
            case "chat":
                yield "POST", "/v1/chat/completions", chat(*texts)
            case "stream":
                yield "POST", "/v1/chat/completions", chat(*texts, stream=True)
            case "text":
                body = {"model": MODEL, "prompt": TEXTS[1], "max_tokens": ANSWER_TOKENS, "seed": 7}
                yield "POST", "/v1/completions", body | {"temperature": 0}
            case "response":
                kept = random.choice((True, False)) or number < len(_EACH_ONCE)
                yield "POST", "/v1/responses", responded(TEXTS[1], kept)
            case "session":
                yield "POST", "/huginn/v1/sessions", {"persona": "sally", "place": "well"}
                messages = chat(*texts)["messages"]
                yield "POST", "/huginn/v1/contexts", {"model": MODEL, "messages": messages}
            case _:
                yield "POST", "/huginn/v1/sources", {"name": "sled"}
                yield "POST", "/huginn/v1/sources/sled/events", merged(f"{number}")
                yield "POST", "/huginn/v1/kinds", {"kind": "Seen", "schema": {"type": "object"}}


async def live(made: House, seed: int, steps: int) -> Leaked:
    """Let alice have a past; all that she was told of."""
    told = Seen()
    # What is drawn here is drawn in no world without her.
    made.rooms.entropy.drawn += _DRAWS
    for request in long_ago():
        await made.http(OTHER, request, told)
    # And a domain of hers that nobody is left in.
    left = "POST", "/huginn/v1/erasures", {"target": "domain", "name": f"{OTHER}-gone"}
    await made.http("operator", left, told)
    made.later(made.rooms.clock.now_ns + _AWAY_NS)
    for request in past(Random(seed), steps):
        await made.http(OTHER, request, told)
    # Evidence says how many handles were revoked when it was given.
    await made.quiet()
    # Not leaked: whoever holds a handle may know whether it was taken back.
    await taken_back(made, OTHER)
    await made.quiet()
    made.goes_on = True
    post = made.rooms.post
    handles = [ask.chain for ask in post.asked("authority", "hand_out", HandOut)]
    # The ids of her objects follow from what she said.
    objects = map(str, made.rooms.store.list_members(OTHER))
    return Leaked([*told.ids, *derived(made), *objects], handles)


async def taken_back(made: House, who: str) -> None:
    """Let `who` give out a handle and take it back again."""
    by = made.people[who].principal
    ask = TakeBack(chain=list(given_out(by)))
    await by.caller.ask("authority", "take_back", ask, TakenBack)


def derived(made: House) -> list[str]:
    """The ids of what rooms reported so far, and of what came out of it."""
    found: dict[str, None] = {}
    for ask in made.rooms.post.asked("muninn", "report", Report):
        for entry in ask.entries:
            found[str(invocation_id(entry.invocation))] = None
            found |= dict.fromkeys(ID.findall(repr(entry)))
            evidence = open_evidence(entry.evidence or b"")
            found |= {output.id: None for output in evidence.outputs}
    return list(found)
