"""Streams end when what they go out under is revoked, wherever they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from actors.live_streams import LiveStreams
from protocol.errors import CapabilityError
from protocol.handle import Handle
from protocol.ids import CapabilityId
from tests.worker_rooms import call_from

ROOT, LEAF, OTHER = (CapabilityId.of(name) for name in (b"root", b"leaf", b"other"))


def handle(*lineage: CapabilityId) -> Handle:
    return replace(call_from().handle, lineage=lineage)


class Source:
    """Items that come when they are put; `closed` once nobody wants more."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.closed = False

    async def items(self) -> AsyncGenerator[str, None]:
        try:
            while (item := await self.queue.get()) != "end":
                if item == "late":
                    raise TimeoutError("its own")
                yield item
        finally:
            self.closed = True


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize("revoked", [ROOT, LEAF])
async def test_a_stream_that_waits_ends_at_once(revoked: CapabilityId) -> None:
    live, source = LiveStreams(), Source()
    stream = live.until_revoked(handle(ROOT, LEAF), source.items())
    source.queue.put_nowait("a")
    assert await anext(stream) == "a"
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    live.revoke({OTHER.digest})
    await asyncio.sleep(0.01)
    assert not waiting.done(), "what is revoked is another's"
    live.revoke({revoked.digest})
    async with asyncio.timeout(60):
        with pytest.raises(CapabilityError, match="revoked while") as error:
            await waiting
    assert error.value.step == "revocation"
    assert source.closed
    assert not len(live)


@pytest.mark.req("AUT-4")
async def test_nothing_goes_out_after_the_revocation() -> None:
    """The reader has not asked for the next item yet, and it lies ready."""
    live, source = LiveStreams(), Source()
    stream = live.until_revoked(handle(ROOT), source.items())
    for letter in "ab":
        source.queue.put_nowait(letter)
    assert await anext(stream) == "a"
    live.revoke({ROOT.digest})
    with pytest.raises(CapabilityError):
        await anext(stream)
    assert not len(live)


async def test_an_undisturbed_stream_is_what_it_is() -> None:
    live, source = LiveStreams(), Source()
    for item in ("a", "b", "end"):
        source.queue.put_nowait(item)
    assert [each async for each in live.until_revoked(handle(ROOT), source.items())] == ["a", "b"]
    assert source.closed
    assert not len(live)


async def test_a_timeout_of_its_own_is_not_taken_for_a_revocation() -> None:
    live, source = LiveStreams(), Source()
    source.queue.put_nowait("late")
    with pytest.raises(TimeoutError, match="its own"):
        await anext(live.until_revoked(handle(ROOT), source.items()))


async def test_a_cancelled_reader_is_cancelled_though_it_is_revoked_too() -> None:
    live, source = LiveStreams(), Source()
    waiting = asyncio.ensure_future(anext(live.until_revoked(handle(ROOT), source.items())))
    await asyncio.sleep(0)
    live.revoke({ROOT.digest})
    waiting.cancel()
    with pytest.raises((asyncio.CancelledError, CapabilityError)):
        await waiting
    assert source.closed
    assert not len(live)
