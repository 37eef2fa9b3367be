"""An installation whose object store is watched, and one who may ask it."""

from __future__ import annotations

import pytest

from tests.rooms import Installation, Principal
from tests.ropes_rooms import Watched


@pytest.fixture
async def house() -> Installation:
    return await Installation(store=Watched()).start()


@pytest.fixture
async def alice(house: Installation) -> Principal:
    return await house.enroll("alice")
