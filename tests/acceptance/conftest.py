"""Fixtures of the acceptance tests: an installation for what is public."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.public_house import PublicHouse, public_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[PublicHouse]:
    async with public_house(tmp_path / "pages") as made:
        yield made
