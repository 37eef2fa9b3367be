"""The service that the end-to-end tests talk to. They use `base_url` and `operator_key` alone, so
that they hold for any service, whatever model it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fake_rooms import Service, running


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with running() as started:
        yield started
