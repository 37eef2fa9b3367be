"""I-NO-PRESENCE, looked at from outside: nobody can find out what another domain has asked.

Alice does anything at random. Then a stranger asks everything that there is to ask: every path with
every id that alice was ever told, every message to the rooms themselves, and the very texts that
she used. Beside it the same installation without alice's past is asked the same: each answer is the
same there, but for ids that are drawn and for times. One who may not see telemetry is answered the
same, besides, whether it asks for the first time or again. And what a stranger does within its own,
or has erased, changes no answer of alice's.

One of the strangers administers a part of the installation, and asks as such, too.

What is public has smaller worlds of its own: in halls a stranger asks behind public beginnings what
alice may have asked there, and who claims what is public, or another's, is refused.

That this sees is shown by taking out, one at a time, each check that stands between domains, in
both worlds: then somebody's answers differ, or something that is not theirs is not refused.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from tests import presence_taken as taken_away
from tests.mutations import Mutation, mutated
from tests.presence_checks import CHECKS, GATEWAY, UNTOUCHED, WARMTH, Check
from tests.presence_claims import claims
from tests.presence_deputy import DEPUTY, administering, deputize
from tests.presence_halls import HALLS, Hall, Told
from tests.presence_halls import STREAMS as HALL_STREAMS
from tests.presence_house import ALL_RIGHTS, House, house
from tests.presence_messages import OTHER, inside, messages
from tests.presence_past import live, taken_back
from tests.presence_probes import hers, own, probing, straight, taking
from tests.presence_seen import Different, Seen
from tests.presence_walls import CLAIMS, IN_HALLS, SPARED
from tests.stores import FAST

SEEDS = range(40) if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else range(1)
STEPS = 6
FEW_STEPS = 5
STRANGERS = ("bob", "boris", "wendy", DEPUTY)


@asynccontextmanager
async def _world(streams: int = 16) -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        async with house(Path(root), streams) as made:
            yield made


async def _side_by_side(who: str, seed: int, steps: int, **headers: str) -> int:
    """Ask as `who` in a world with a past of alice's and in one without, answer by answer; how
    often. Raises Different at the first answer that is not the same in both."""
    async with AsyncExitStack() as stack:
        lived = await stack.enter_async_context(_world())
        never = await stack.enter_async_context(_world())
        if who == DEPUTY:
            await deputize(lived)
            await deputize(never)
        leaked = await live(lived, seed, steps)
        # Which handles were revoked is hers to know; how many were, evidence states.
        await taken_back(never, "operator")
        seen, wanted = Seen(), Seen()
        theirs = probing(never, who, leaked, wanted, **headers)
        await stack.enter_async_context(aclosing(theirs))
        ours = probing(lived, who, leaked, seen, **headers)
        await stack.enter_async_context(aclosing(ours))
        async for _ in ours:
            await anext(theirs)
            if seen.said[-1] != wanted.said[-1]:
                raise Different(f"{seen.said[-1]} where the other world has {wanted.said[-1]}")
        assert await anext(theirs, None) is None
        assert len(seen.said) == len(wanted.said)
        return len(seen.said)


@pytest.mark.req("AUT-3", "AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_strangers_answers_do_not_depend_on_a_past(who: str, seed: int) -> None:
    assert await _side_by_side(who, seed, STEPS) > 5


@pytest.mark.req("AUT-3", "AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_without_any_one_check_there_is_an_oracle(check: Check) -> None:
    with mutated(check.mutation), pytest.raises(Different):
        asyncio.run(_side_by_side(check.who, 0, FEW_STEPS))


@pytest.mark.req("AUT-2", "AUT-7")
async def test_the_gateway_decides_nothing() -> None:
    """Also if it lets every request name a namespace of alice's."""
    with mutated(GATEWAY):
        assert await _side_by_side("bob", 0, FEW_STEPS, **{"Huginn-Namespace": OTHER}) > 100


@pytest.mark.req("AUT-7")
async def test_every_operation_is_probed() -> None:
    """By the deputy all; by others those that a principal's own handle carries the right for."""
    async with _world() as made:
        leaked = await live(made, 0, FEW_STEPS)
        for who in ("bob", "boris", DEPUTY):
            asked = [*messages(who, leaked), *inside(leaked)]
            if who == DEPUTY:
                asked += administering(leaked)
            wanted = {
                (room.name, op)
                for room in made.rooms.post.rooms.values()
                for op, operation in room._table.items()
                if who == DEPUTY or operation.right not in ("operate", "grant", "revoke")
            }
            probes = {(message.room, message.op) for message in asked}
            # Answers are asked for over HTTP; the authority gives the order to erase, and takes
            # none but what a deputy sends.
            unasked = {("worker", "generate")}
            if who != DEPUTY:
                unasked.add(("authority", "erase"))
            assert wanted - probes == unasked


# -- what is alice's stays as it is ----------------------------------------------------------------


async def _alices(*, probed: bool, taken: bool, wanted: Seen | None = None) -> Seen:
    """What alice is answered after her own, with or without a stranger before. Raises Different at
    the first answer that is not the one in `wanted`."""
    async with _world() as made:
        leaked = await live(made, 0, FEW_STEPS)
        made.goes_on = False
        if probed:
            async with aclosing(probing(made, "bob", leaked, Seen())) as steps:
                async for _ in steps:
                    pass
        made.later()
        if taken:
            await taking(made, "bob", leaked)
        seen = Seen(None if wanted is None else wanted.said)
        await hers(made, leaked, seen)
        return seen


async def _touched(*, probed: bool) -> None:
    alone = await _alices(probed=False, taken=False)
    assert len(alone.said) > 20
    beside = await _alices(probed=probed, taken=True, wanted=alone)
    assert len(beside.said) == len(alone.said)


@pytest.mark.req("AUT-3", "AUT-5", "AUT-9")
async def test_what_a_stranger_does_changes_nothing_of_hers() -> None:
    await _touched(probed=True)


@pytest.mark.req("AUT-3", "AUT-5", "AUT-9")
@pytest.mark.parametrize("mutation", UNTOUCHED, ids=str)
def test_without_any_one_check_she_feels_a_stranger(mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(Different):
        asyncio.run(_touched(probed=False))


@cache
def _untouched() -> tuple[tuple[str, str], ...]:
    """What alice is answered beside strangers who do nothing. It is the same without any one of
    `SPARED`: there is nobody that she is to be spared from."""
    return tuple(asyncio.run(_beside(taken=False)).said)


async def _beside(*, taken: bool, wanted: Sequence[tuple[str, str]] | None = None) -> Seen:
    async with _world(taken_away.STREAMS) as made:
        seen = Seen(None if wanted is None else [*wanted])
        await taken_away.Beside(made, seen, taken=taken).live()
        return seen


@pytest.mark.req("AUT-3", "AUT-5", "AUT-8", "AUT-9")
def test_what_strangers_have_erased_or_cancelled_is_not_hers() -> None:
    alone = _untouched()
    assert len(alone) > 40
    assert len(asyncio.run(_beside(taken=True, wanted=alone)).said) == len(alone)


@pytest.mark.req("AUT-3", "AUT-5", "AUT-8", "AUT-9")
@pytest.mark.parametrize("mutation", SPARED, ids=str)
def test_without_any_one_check_she_loses_something(mutation: Mutation) -> None:
    alone = _untouched()
    with mutated(mutation), pytest.raises(Different):
        asyncio.run(_beside(taken=True, wanted=alone))


# -- what is public, and whose an answer is --------------------------------------------------------


async def _in_a_hall(hall: str) -> int:
    """Ask what is asked in that hall with and without alice in it; how often. Raises Different."""
    who, act = HALLS[hall]
    told, wanted = Told(), Seen()
    for lived in (True, False):
        async with _world(HALL_STREAMS) as made:
            await made.enroll("vera", ALL_RIGHTS, telemetry=None)
            seen = wanted if lived else Seen(wanted.said)
            await act(Hall(made, who, seen, told, lived=lived))
    assert len(seen.said) == len(wanted.said)
    return len(seen.said)


@pytest.mark.req("AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("hall", HALLS)
async def test_a_strangers_answers_do_not_depend_on_her_in_a_hall(hall: str) -> None:
    assert await _in_a_hall(hall) >= 2


@pytest.mark.req("AUT-5", "AUT-7", "AUT-9")
@pytest.mark.parametrize("check", IN_HALLS, ids=str)
def test_without_any_one_check_a_hall_is_an_oracle(check: Check) -> None:
    with mutated(check.mutation), pytest.raises(Different):
        asyncio.run(_in_a_hall(check.who))


async def _claimed() -> None:
    async with _world() as made:
        await claims(made)


@pytest.mark.req("AUT-2", "AUT-5")
async def test_a_claim_to_what_is_public_is_refused() -> None:
    await _claimed()


@pytest.mark.req("AUT-2", "AUT-5")
@pytest.mark.parametrize("mutation", CLAIMS, ids=str)
def test_without_any_one_check_a_claim_is_taken(mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(Different):
        asyncio.run(_claimed())


# -- warmth of one's own ---------------------------------------------------------------------------


async def _asked_twice(who: str) -> None:
    """Raises Different if anything is answered otherwise when it is warm."""
    async with _world() as made:
        for request in own():
            if request[1] in _COMPUTED:
                cold = Seen()
                await made.http(who, request, cold)
                await made.quiet()
                await made.http(who, request, Seen(cold.said))
        cold = Seen()
        await straight(made, who, "resp-of-its-own", cold)
        await straight(made, who, "resp-of-its-own", Seen(cold.said))


_COMPUTED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/huginn/v1/contexts")


@pytest.mark.req("AUT-7", "AUT-9")
async def test_without_telemetry_warm_is_answered_as_cold() -> None:
    await _asked_twice("bob")
    # The control: who has telemetry is shown what was reused.
    with pytest.raises(Different):
        await _asked_twice("boris")


@pytest.mark.req("AUT-7", "AUT-9")
@pytest.mark.parametrize("mutation", WARMTH, ids=str)
async def test_what_hides_warmth_is_looked_for(mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(Different):
        await _asked_twice("bob")
