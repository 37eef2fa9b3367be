"""I-NO-PRESENCE, looked at from outside: nobody can find out what another domain has asked.

Alice does anything at random. Then a stranger asks everything that there is to ask: every path with
every id that alice was ever told, every message to the rooms themselves, and the very texts that
she used. Beside it the same installation without alice's past is asked the same: each answer is the
same there, but for ids that are drawn and for times. One who may not see telemetry is answered the
same, besides, whether it asks for the first time or again. And what a stranger does within its own
changes no answer of alice's.

That this sees is shown by taking out, one at a time, each check that stands between domains, in
both worlds: then somebody's answers differ, or something that is alice's is not refused.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from tests.mutations import Mutation, mutated
from tests.presence_checks import CHECKS, GATEWAY, UNTOUCHED, WARMTH, Check
from tests.presence_house import Different, House, Seen, house
from tests.presence_messages import OTHER, inside, messages
from tests.presence_past import live, taken_back
from tests.presence_probes import hers, own, probing, straight, taking
from tests.stores import FAST

SEEDS = range(40) if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else range(1)
STEPS = 6
FEW_STEPS = 5
STRANGERS = ("bob", "boris", "wendy")


@asynccontextmanager
async def _world() -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        async with house(Path(root)) as made:
            yield made


async def _side_by_side(who: str, seed: int, steps: int, **headers: str) -> int:
    """Ask as `who` in a world with a past of alice's and in one without, answer by answer; how
    often. Raises Different at the first answer that is not the same in both."""
    async with AsyncExitStack() as stack:
        lived = await stack.enter_async_context(_world())
        never = await stack.enter_async_context(_world())
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
    """Those that a principal's own handle carries the right for."""
    async with _world() as made:
        leaked = await live(made, 0, FEW_STEPS)
        for who in ("bob", "boris"):
            asked = [*messages(who, leaked), *inside(leaked)]
            wanted = {
                (room.name, op)
                for room in made.rooms.post.rooms.values()
                for op, operation in room._table.items()
                if operation.right not in ("operate", "grant", "revoke")
            }
            probes = {(message.room, message.op) for message in asked}
            # Answers are asked for over HTTP; the authority gives the order to erase, and takes
            # none.
            assert wanted - probes == {("worker", "generate"), ("authority", "erase")}


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
