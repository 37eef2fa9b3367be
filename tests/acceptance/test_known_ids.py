"""A known id of every kind of object, presented by a stranger: an id grants nothing (AUT-3).

Whoever knows an id of alice's is answered the same as one who made the id up, wherever it can be
presented: byte for byte, but for the id itself. No kind is left out: one that is new in the
language, or in what somebody is told, fails here until there is one of alice's, and a place that
takes it or the reason why none does.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.ids import PREFIX_TO_KIND
from tests.mutations import mutated
from tests.presence_checks import CHECKS, Check
from tests.presence_deputy import DEPUTY, deputize
from tests.presence_house import House, house
from tests.presence_kinds import UNMADE, UNTAKEN, answers, known, pairs
from tests.presence_messages import OTHER, Leaked
from tests.presence_past import live
from tests.presence_seen import Different
from tests.stores import FAST

STEPS = 5
# All checks are taken out in `test_presence`: these, to see that the kinds are told apart here too.
_SOME = [
    each
    for each in CHECKS
    if each.mutation.function in ("RopesRoom._view", "Delegations.take_back")
]


@asynccontextmanager
async def _lived() -> AsyncIterator[tuple[House, Leaked, dict[str, str]]]:
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        async with house(Path(root)) as made:
            await deputize(made)
            leaked = await live(made, 0, STEPS)
            made.goes_on = False
            yield made, leaked, await known(made, leaked)


async def _presented(who: str) -> set[str]:
    """Let `who` present what is alice's; of what kinds. Raises Different."""
    async with _lived() as (made, leaked, ids):
        asked = set()
        for pair in await pairs(made, who, leaked, ids):
            # Where alice works wendy may write and answer: that is what her name is for.
            if who == "wendy" and pair.kind == "name":
                continue
            hers, none = await answers(made, who, pair, ids)
            if hers != none:
                raise Different(f"{pair.known}: {hers}, and for an id that nobody has {none}")
            asked.add(pair.kind)
        assert asked >= set(ids) - {"name"}
        return asked


@pytest.mark.req("AUT-3", "AUT-5")
@pytest.mark.parametrize("who", ["bob", "wendy", DEPUTY])
async def test_a_known_id_is_answered_as_one_that_nobody_has(who: str) -> None:
    """By one who may not see telemetry, one who works where she does, and one who has all rights
    and administers a part."""
    assert len(await _presented(who)) > 20


@pytest.mark.req("AUT-3", "AUT-5")
@pytest.mark.parametrize("check", _SOME, ids=str)
async def test_an_id_that_matters_to_a_stranger_is_found(check: Check) -> None:
    with mutated(check.mutation), pytest.raises(Different):
        await _presented(check.who)


@pytest.mark.req("AUT-3")
async def test_of_every_kind_there_is_an_id_that_matters_to_her_or_a_reason() -> None:
    async with _lived() as (made, leaked, ids):
        assert set(ids) | set(UNMADE) == {*PREFIX_TO_KIND, *leaked.kinds(), "name"} - {"public"}
        assert not set(ids) & set(UNMADE)
        taken: set[str] = set()
        for pair in await pairs(made, OTHER, leaked, ids):
            if pair.kind in taken:
                continue
            hers, none = await answers(made, OTHER, pair, ids)
            if hers != none:
                taken.add(pair.kind)
        assert set(ids) - taken == set(UNTAKEN)
