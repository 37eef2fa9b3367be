"""A house that dies at any call of answering and settling, and what is found afterwards.

Settling is acknowledged to nobody. But what it leaves has to be right: every page on disk is whole
and what a worker computes that never died, or it is not there; muninn holds no conflict; and the
next turn, on a worker that rose over these pages, has the answer and the state of a cold one. The
same in the way up of a house, over what a death in the middle of a page left. The controls write
pages in place; with each of them the checker has to cry out.
"""

from __future__ import annotations

import os

import pytest

from store.files import UNFINISHED
from store.pages.header import domain_digest
from tests.crash.stage import (
    Prepare,
    Stage,
    Step,
    clients_gone_at_every_call,
    deaths_at_every_call,
)
from tests.events_rooms import NAMESPACE
from tests.mined_pages import CarelessFiles, InPlaceFiles
from tests.page_samples import files_below
from tests.session_play import Talk, Told

# `make crash` sets this to 1: every call. The default looks at every eleventh.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "11"))
# Less than two settled conversations.
LITTLE_BYTES = 40_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rooms that die say so at length."""
    caplog.set_level("CRITICAL")


async def _finished(stage: Stage, talk: Talk, text: str = "ok") -> Told:
    await stage.play.emit("huskies", 2)
    told = await stage.play.begin(talk, text)
    assert told is not None
    await stage.play.finish(talk, told, "Well.")
    return told


async def _settled(stage: Stage) -> Step:
    told = await _finished(stage, stage.play.talks[0])
    return lambda: stage.settle(told)


async def _settled_again(stage: Stage) -> Step:
    """Over pages of a life before: what is fed again has to come to what is there and was told."""
    await (await _settled(stage))()
    told = await _finished(stage, stage.play.talks[0], "and then?")
    await stage.play.crash()
    return lambda: stage.settle(told)


async def _settled_in_little_room(stage: Stage) -> Step:
    """Where the pages of another conversation have to go first."""
    other = await _finished(stage, stage.play.talks[1], "so much " * 20)
    await stage.settle(other)
    told = await _finished(stage, stage.play.talks[0])
    stage.house.folder.budget_bytes = LITTLE_BYTES
    await stage.play.crash()
    return lambda: stage.settle(told)


async def _answered(stage: Stage) -> Step:
    """All that comes after a turn's beginning: the worker's answer, kept and then settled."""
    await stage.play.emit("huskies", 2)
    talk = stage.play.talks[0]
    told = await stage.play.begin(talk, "ok")
    assert told is not None

    async def answered() -> None:
        await stage.answer(talk, told)
        await stage.settle(told)

    return answered


async def _risen(stage: Stage) -> Step:
    """A house comes up over half a page, without its index, and in less room than before."""
    await (await _settled_again(stage))()
    folder = stage.house.folder
    pages = files_below(folder.path)
    half = folder.path / domain_digest(NAMESPACE).hex() / f"{pages[0].name}{UNFINISHED}"
    half.write_bytes(pages[0].read_bytes()[:100])
    folder.loses_index = True
    folder.budget_bytes = sum(path.stat().st_size for path in pages) - 1
    return stage.play.crash


STEPS = [_settled, _settled_again, _settled_in_little_room, _answered]


@pytest.mark.req("EVT-5", "KV-6")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("prepare", [*STEPS, _risen])
async def test_a_death_at_every_call_leaves_what_is_right(prepare: Prepare, after: bool) -> None:
    stage = await deaths_at_every_call(prepare, after=after, stride=STRIDE)
    # Where nobody died, all of it was of use.
    assert stage.house.restored_tokens > 0
    assert stage.house.remembered > 0


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize("prepare", STEPS)
async def test_a_client_that_goes_away_at_every_call_leaves_what_is_right(
    prepare: Prepare,
) -> None:
    await clients_gone_at_every_call(prepare, stride=STRIDE)


# -- controls: what must be found ---------------------------------------------------------------


async def test_pages_that_are_written_in_place_are_found() -> None:
    with pytest.raises(AssertionError, match="a page was refused"):
        await deaths_at_every_call(_settled, after=False, stride=2, files=InPlaceFiles)


async def test_pages_that_nobody_verifies_are_found() -> None:
    with pytest.raises(AssertionError, match="a page is not what a worker computes"):
        await deaths_at_every_call(_settled, after=False, stride=2, files=CarelessFiles)


async def test_an_answer_from_half_a_page_is_found() -> None:
    """By what is said alone, where nobody looks at the pages."""
    with pytest.raises(AssertionError, match="another answer"):
        await deaths_at_every_call(
            _settled, after=False, stride=2, files=CarelessFiles, looks=False
        )
