"""Fixtures of the muninn room's tests: an installation, who operates it, and one who looks."""

from __future__ import annotations

import pytest

from tests.muninn_rooms import Raven
from tests.rooms import Principal


@pytest.fixture
async def raven() -> Raven:
    return await Raven().start()


@pytest.fixture
async def operator(raven: Raven) -> Principal:
    return await raven.house.enroll("operator", administers=True)


@pytest.fixture
async def alice(raven: Raven) -> Principal:
    return await raven.house.enroll("alice")
