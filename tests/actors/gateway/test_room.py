"""The gateway: one answer for every wrong key, and a drain that waits for what goes on."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway.limits import Limits
from actors.gateway.room import Gateway
from protocol.errors import AuthorityError, ContentError
from tests.fake_rooms import Service, running


def test_limits_are_positive() -> None:
    limits = Limits()
    assert limits.body_bytes_max == 64 * 1024 * 1024
    assert 0 < limits.grace_ns < limits.ping_ns < limits.answer_ns_max


@pytest.mark.req("AUT-3")
async def test_every_wrong_key_is_one_refusal(service: Service) -> None:
    key = service.operator_key
    said = set()
    for header in (
        None,
        "",
        key,
        f"Basic {key}",
        "Bearer",
        "Bearer ",
        f"Bearer {key}x",
        "Bearer é",
    ):
        with pytest.raises(AuthorityError) as caught:
            service.gateway.authenticate(header, "req-1")
        said.add((caught.value.message, caught.value.step))
    assert len(said) == 1
    assert service.gateway.authenticate(f"bearer  {key} ", "req-1").principal == "operator"


async def test_draining_waits_for_work_and_takes_no_more(service: Service) -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.02)
        done.append(1)

    service.gateway.later(work())
    await service.gateway.drain()
    assert done == [1]
    service.gateway.later(work())
    await asyncio.sleep(0.03)
    assert done == [1]


async def test_draining_ends_what_takes_too_long() -> None:
    async with running(Limits(drain_ns_max=10_000_000)) as service:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        service.gateway.later(work())
        await asyncio.sleep(0)
        await service.gateway.drain()
        assert ended.is_set()


async def test_what_fails_later_is_told_to_nobody(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async def ours() -> None:
        raise ContentError("no")

    async def bug() -> None:
        raise KeyError("x")

    gateway: Gateway = service.gateway
    gateway.later(ours())
    gateway.later(bug())
    await gateway.drain()
    assert [record.levelname for record in caplog.records if record.name == "huginn.gateway"] == [
        "ERROR"
    ]
