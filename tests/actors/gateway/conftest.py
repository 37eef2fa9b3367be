"""Fixtures of the gateway's tests: a service over rooms in this process, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from openai import AsyncOpenAI

from tests.fake_rooms import Service, running


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with running() as started:
        yield started


@pytest.fixture
async def http(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that shows the operator's key."""
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    async with aiohttp.ClientSession(service.base_url, headers=headers) as session:
        yield session


@pytest.fixture
async def stranger(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that shows nothing."""
    async with aiohttp.ClientSession(service.base_url) as session:
        yield session


@pytest.fixture
async def tenant(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of another principal, without the right telemetry."""
    headers = {"Authorization": f"Bearer {service.client_key}"}
    async with aiohttp.ClientSession(service.base_url, headers=headers) as session:
        yield session


@pytest.fixture
async def sdk(service: Service) -> AsyncIterator[AsyncOpenAI]:
    """The official client, with the operator's key and no retries."""
    base_url = f"{service.base_url}/v1"
    async with AsyncOpenAI(
        base_url=base_url, api_key=service.operator_key, max_retries=0, timeout=60
    ) as client:
        yield client
