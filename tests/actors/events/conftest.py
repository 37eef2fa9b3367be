"""Fixtures of the events room's tests: a house with one source, and a session that is unaware."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.events_rooms import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Some modules have a house of their own in its place."""
    house = await House().start()
    await house.source("huskies")
    yield house
    await house.room.drain()


@pytest.fixture
async def session(house: House) -> str:
    return (await house.open()).id
