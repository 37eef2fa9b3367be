"""Fixtures of the authority room's tests: an installation, and who operates it."""

from __future__ import annotations

import pytest

from tests.rooms import Installation, Principal


@pytest.fixture
async def house() -> Installation:
    return await Installation().start()


@pytest.fixture
async def operator(house: Installation) -> Principal:
    return await house.enroll("operator", administers=True)
