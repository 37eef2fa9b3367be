"""A room's edge: what is asked is answered, and nothing is raised across it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from random import Random

import pytest

from protocol.envelope import open_reply
from protocol.errors import CODE_TO_ERROR, ContentError, FaultError, HuginnError
from protocol.messages import assembler, ropes
from tests.echo_house import House, Say
from tests.records import Sampler
from tests.rooms import opened


async def test_what_is_asked_is_answered(house: House) -> None:
    assert await house.ask(house.alice.message("worker", "say", Say(what="hi"))) == Say(what="hi")
    items = await house.spelt(house.alice.message("worker", "spell", Say(what="abc")))
    assert [opened(item, Say).what for item in items] == ["a", "b", "c"]
    assert house.echo.heard == ["hi", "abc"]


def error(kind: type[HuginnError]) -> HuginnError:
    details = {name: needed() for name, needed in kind.DETAILS.items()}
    return kind.rebuild(f"about {kind.code}", {**details, "number": 3, "nothing": None})


@pytest.mark.parametrize("code", CODE_TO_ERROR)
async def test_every_error_comes_back_as_its_own_class(house: House, code: str) -> None:
    house.echo.error = error(CODE_TO_ERROR[code])
    replies = [
        await house.echo.receive(house.alice.message("worker", "say", Say(what="x"))),
        (await house.spelt(house.alice.message("worker", "spell", Say(what="xy"))))[-1],
    ]
    for reply in replies:
        with pytest.raises(HuginnError) as caught:
            open_reply(reply)
        assert type(caught.value) is CODE_TO_ERROR[code]
        assert caught.value.to_map() == house.echo.error.to_map()


async def test_a_fault_of_ours_tells_nothing_but_that_it_was_ours(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.echo.error = RuntimeError("alice's secret is 42")
    reply = await house.echo.receive(house.alice.message("worker", "say", Say(what="x")))
    items = await house.spelt(house.alice.message("worker", "spell", Say(what="xy")))
    assert len(items) == 3
    for answer in (reply, items[-1]):
        with pytest.raises(FaultError, match="the worker room failed; its log says why"):
            open_reply(answer)
        assert b"secret" not in answer
    assert caplog.text.count("alice's secret is 42") >= 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def test_a_stream_that_is_left_is_closed(house: House) -> None:
    stream = house.echo.stream(house.alice.message("worker", "spell", Say(what="abc")))
    assert isinstance(stream, AsyncGenerator)
    assert opened(await anext(stream), Say) == Say(what="a")
    await stream.aclose()
    assert house.echo.closed == 1


async def test_cancellation_is_no_answer(house: House) -> None:
    house.echo.error = asyncio.CancelledError()  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        await house.echo.receive(house.alice.message("worker", "say", Say(what="x")))


# -- what a handle says ----------------------------------------------------------------------


async def test_a_call_knows_its_domain_and_namespace_only_if_its_handle_does(
    house: House,
) -> None:
    caller = house.operator.caller
    asked = caller.ask("worker", "place", Say(what="namespace"), Say, administer=True)
    assert await asked == Say(what="None")
    with pytest.raises(ContentError, match="no computation-sharing domain"):
        await caller.ask("worker", "place", Say(what="domain"), Say, administer=True)


async def test_a_room_asks_no_other_for_a_caller_who_did_not_say_so(house: House) -> None:
    ask = assembler.ShowTree(context=Sampler(Random(1)).record(assembler.ShowTree).context)
    with pytest.raises(ContentError, match="no delegation for the ropes room"):
        await house.alice.caller.ask("assembler", "tree", ask, ropes.Tree)
    assert not house.installation.post.asked("ropes", "get", ropes.GetObjects)
