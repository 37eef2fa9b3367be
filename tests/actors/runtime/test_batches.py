"""Batches: everything, in order, together where it came together, and closed when they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.batches import batches


class Source:
    """Gives `groups`, each of them at once, and each but the first when `go` is called for it."""

    def __init__(self, groups: list[list[bytes]], error: Exception | None = None) -> None:
        self._groups = groups
        self._error = error
        self._may = asyncio.Semaphore(1)
        self.closed = asyncio.Event()

    def go(self) -> None:
        self._may.release()

    async def items(self) -> AsyncIterator[bytes]:
        try:
            for group in self._groups:
                await self._may.acquire()
                for item in group:
                    yield item
            if self._error is not None:
                raise self._error
        finally:
            self.closed.set()


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1), max_size=5))
def test_what_came_at_once_goes_at_once(groups: list[list[bytes]]) -> None:
    async def collected() -> list[list[bytes]]:
        source = Source(groups)
        found = []
        async with aclosing(batches(source.items())) as given:
            async for batch in given:
                found.append(batch)
                source.go()
        assert source.closed.is_set()
        return found

    assert asyncio.run(collected()) == groups


async def test_what_the_items_raise_comes_after_what_they_gave() -> None:
    source = Source([[b"a", b"b"]], ValueError("broken"))
    given = batches(source.items())
    assert await anext(given) == [b"a", b"b"]
    with pytest.raises(ValueError, match="broken"):
        await anext(given)
    assert source.closed.is_set()


async def test_closing_closes_items_that_wait() -> None:
    source = Source([[b"a"], [b"never"]])
    given = batches(source.items())
    assert await anext(given) == [b"a"]
    await given.aclose()
    assert source.closed.is_set()


async def test_cancelling_a_reader_closes_the_items() -> None:
    source = Source([[b"a"], [b"never"]])
    began = asyncio.Event()

    async def read() -> None:
        async with aclosing(batches(source.items())) as given:
            async for _ in given:
                began.set()

    reader = asyncio.create_task(read())
    await began.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert source.closed.is_set()
