"""I-NO-PRESENCE, looked at from outside: nobody can find out what another domain has asked.

Alice does anything at random. Then a stranger asks everything that there is to ask: every path with
every id that alice was ever told, every message to the rooms themselves, and the very texts that
she used. The oracle is the same installation without alice's past: each answer is the same there,
but for ids that are drawn and for times. One who may not see telemetry is answered the same,
besides, whether it asks for the first time or again.

That the oracle sees is shown by taking out, one at a time, each check that stands between domains.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from actors.gateway.limits import Limits
from actors.gateway.turns import Ask, chat_prompt, jobs
from protocol.blocks import Role
from protocol.messages.worker import GREEDY
from tests.events_rooms import said
from tests.mutations import Mutation, mutated
from tests.presence_house import Different, House, Seen, house, past
from tests.presence_probes import Leaked, messages, own, probed

SEEDS = range(40) if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else range(1)
STEPS = 6
STRANGERS = ("bob", "boris")


async def _live(made: House, seed: int, steps: int) -> Leaked:
    """Alice's past; all that she was told of."""
    told = Seen()
    for request in past(Random(seed), steps):
        await made.http("alice", request, told)
    await made.quiet()
    return Leaked([*told.ids, *made.derived()])


async def _with_past(
    who: str, seed: int, steps: int, wanted: Seen | None = None
) -> tuple[Leaked, Seen, list[str]]:
    with tempfile.TemporaryDirectory() as root:
        async with house(Path(root)) as made:
            leaked = await _live(made, seed, steps)
            seen, granted = await probed(made, who, leaked, wanted)
            return leaked, seen, granted


async def _without(who: str, leaked: Leaked) -> Seen:
    with tempfile.TemporaryDirectory() as root:
        async with house(Path(root)) as made:
            seen, granted = await probed(made, who, leaked)
            assert not granted
            return seen


@functools.cache
def _oracle(who: str) -> Seen:
    """What `who` is told where alice never was, asked with the ids of a past of hers."""
    leaked, _, _ = asyncio.run(_with_past(who, 0, 5))
    return asyncio.run(_without(who, leaked))


@pytest.mark.req("AUT-3", "AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_strangers_answers_do_not_depend_on_a_past(who: str, seed: int) -> None:
    leaked, seen, granted = await _with_past(who, seed, STEPS)
    assert not granted, "what names another's was not refused"
    never = await _without(who, leaked)
    assert len(seen.said) == len(never.said) > 100
    for answered, wanted in zip(seen.said, never.said, strict=True):
        assert answered == wanted


@pytest.mark.req("AUT-7")
async def test_every_operation_is_probed() -> None:
    """Those that a principal's own handle carries the right for. Answers and the authority's are
    asked for over HTTP, by every path that there is."""
    with tempfile.TemporaryDirectory() as root:
        async with house(Path(root)) as made:
            leaked = await _live(made, 0, 5)
            probes = {(message.room, message.op) for message in messages("bob", leaked)}
            wanted = {
                (room.name, op)
                for room in made.rooms.post.rooms.values()
                for op, operation in room.operations.items()
                if operation.right not in ("operate", "grant", "revoke")
            }
            over_http = {each for each in wanted if each[0] == "authority"}
            assert wanted - probes == over_http | {("worker", "generate")}


async def _asked_twice(who: str) -> None:
    """Raises Different if anything is answered otherwise when it is warm."""
    with tempfile.TemporaryDirectory() as root:
        async with house(Path(root)) as made:
            for request in own():
                if request[1] in _COMPUTED:
                    cold = Seen()
                    await made.http(who, request, cold)
                    await made.quiet()
                    await made.http(who, request, Seen(cold.said))
            # And past the gateway, which hides some of it once more.
            caller = made.people[who].principal.caller
            blocks = [said(Role.USER, "what the worker itself says"), said(Role.MODEL, "is this")]
            model = next(iter(made.gateway.models))
            prompt = await chat_prompt(caller, model, blocks, caller.namespace)
            ask = Ask(structs.replace(GREEDY, seed=7), [], 1, 4, None, False)
            told: list[Seen] = [Seen(), Seen()]
            told[1].wanted = told[0].said
            for seen in told:
                (job,) = jobs(prompt, ask, model, "resp-of-its-own", Limits())
                await made.message(who, "worker", "generate", job, seen)
                await made.quiet()


_COMPUTED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/huginn/v1/contexts")


@pytest.mark.req("AUT-7", "AUT-9")
async def test_without_telemetry_warm_is_answered_as_cold() -> None:
    await _asked_twice("bob")
    # The control: who has telemetry is shown what was reused.
    with pytest.raises(Different):
        await _asked_twice("boris")


@pytest.mark.req("AUT-7", "AUT-9")
@pytest.mark.parametrize(
    "mutation",
    [
        Mutation("actors.worker.room", "_sees", "call.has(Right.TELEMETRY)", "True"),
        Mutation(
            "actors.worker.room",
            "WorkerRoom.on_generate",
            'telemetry or event.kind == "delta"',
            'event.kind == "prefill" or telemetry or event.kind == "delta"',
        ),
    ],
    ids=str,
)
async def test_what_hides_warmth_is_looked_for(mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(Different):
        await _asked_twice("bob")


WORKER, EVENTS, ROPES = "actors.worker", "actors.events", "actors.ropes.room"
ANY_PAGE = "next((e for e in self._catalog.entries() if e.header.chain == chain), None)"
MAY = "may(call, Right.OBSERVE, row.namespace)"
# Every check that stands between domains or views, each alone: whom of the strangers it would tell
# something, where it is, and how it is taken out.
CHECKS = [
    ("boris", "actors.room", "Call.domain", "return self.handle.domain", 'return "all"'),
    ("boris", f"{WORKER}.streams", "Streams.match", "stream.domain == domain", "True"),
    (
        "boris",
        "store.pages.shelf",
        "Shelf.find",
        "self._catalog.get((own, chain.digest))",
        ANY_PAGE,
    ),
    ("boris", f"{WORKER}.receipts", "_key", "[domain, response]", "[response]"),
    ("boris", f"{WORKER}.room", "WorkerRoom.on_pages", "call.domain", '"alice"'),
    ("boris", f"{WORKER}.tiers", "Tiers.holds", "tier.find(domain", 'tier.find("alice"'),
    ("boris", "actors.muninn.room", "MuninnRoom.on_look", "call.domain", '"alice"'),
    ("boris", "actors.reporting", "_Executed.key", "self.domain,", '"",'),
    ("bob", ROPES, "RopesRoom._view", "list_namespaces(root)", 'list_namespaces("alice")'),
    ("bob", ROPES, "RopesRoom._own", "not call.handle.permits(Right.WRITE, wanted) or", ""),
    ("bob", "actors.assembler.room", "_require_namespace", "not call.handle.permits", "not print"),
    ("bob", f"{EVENTS}.scope", "require", "not call.handle.permits(right, wanted)", "False"),
    ("bob", f"{EVENTS}.registry", "SourceRegistry.find", "or not may(call, right, place)", ""),
    ("bob", f"{EVENTS}.registry", "SourceRegistry.visible", f" and {MAY}", ""),
    ("bob", f"{EVENTS}.kinds", "KindRegistry.register", "not may(call, Right.EMIT", "not str(call"),
    ("bob", f"{EVENTS}.kinds", "KindRegistry.list", " and may(call, Right.OBSERVE, namespace)", ""),
    ("bob", f"{EVENTS}.sources", "EventSources.add", "not may(call, Right.EMIT", "not str(call"),
    ("bob", f"{EVENTS}.sources", "EventSources._reader", "not may(call", "not print(call"),
    ("bob", f"{EVENTS}.sessions", "Sessions.list", "call.handle.permits", "str"),
    ("bob", f"{EVENTS}.book", "Book.live", " or session.namespace != namespace", ""),
]


@pytest.mark.req("AUT-3", "AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check[1]}-{check[2]}")
def test_without_any_one_check_there_is_an_oracle(check: tuple[str, str, str, str, str]) -> None:
    who, *rest = check
    never = _oracle(who)
    with mutated(Mutation(*rest)), pytest.raises(Different):
        asyncio.run(_with_past(who, 0, 5, never))
