"""An installation with an echo in it; the folders below have houses of their own."""

from __future__ import annotations

import pytest

from tests.echo_house import House, echo_house


@pytest.fixture
async def house() -> House:
    return await echo_house()
