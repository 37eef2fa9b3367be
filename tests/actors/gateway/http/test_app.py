"""The server: JSON also for what is no HTTP, and a stop that waits for answers' ends."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiohttp import ClientSession

from actors.gateway.http.app import make_app, serve
from tests.fake_rooms import Service, running


async def raw(service: Service, data: bytes) -> tuple[bytes, bytes]:
    """(head, body) of what the server says to raw bytes."""
    reader, writer = await asyncio.open_connection(*service.host_port)
    writer.write(data)
    await writer.drain()
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"what is this\r\n\r\n", b" 400 "),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nno colon here\r\n\r\n", b" 400 "),
        (b"POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b" 400 "),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n"
            b"Connection: close\r\nContent-Length: 0\r\n\r\n",
            b" 417 ",
        ),
    ],
)
async def test_what_is_no_http_is_an_error_in_json(
    service: Service, data: bytes, status: bytes
) -> None:
    head, body = await raw(service, data)
    assert status in head.splitlines()[0]
    assert b"application/json" in head
    assert b"x-request-id" in head.lower()
    error = msgspec.json.decode(body)["error"]
    assert error["type"] == "invalid_request_error"


async def test_a_port_that_is_taken_is_an_os_error(service: Service) -> None:
    host, port = service.host_port
    with pytest.raises(OSError, match="address"):
        await serve(make_app(service.gateway), host, port)


async def test_stopping_drains_the_gateway() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append(1)

    async with running() as service:
        service.gateway.later(work())
    assert done == [1]


async def test_keep_alive_serves_one_request_after_another(http: ClientSession) -> None:
    for _ in range(3):
        async with http.get("/v1/models") as response:
            assert response.status == 200
            await response.read()
