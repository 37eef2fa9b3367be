"""An installation with two profiles, and one who may ask it."""

from __future__ import annotations

import pytest

from tests.rooms import PROFILE, Installation, Principal, profile


@pytest.fixture
async def house() -> Installation:
    profiles = {PROFILE: profile(), "crow": profile("crow", weights=b"crow")}
    return await Installation(profiles=profiles).start()


@pytest.fixture
async def alice(house: Installation) -> Principal:
    return await house.enroll("alice")
