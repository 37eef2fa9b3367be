"""Frames: calls and streams over one connection, and what a break of it does to each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.runtime.frames import FramePort, FrameServer, Kind, encode_frame, read_frame
from protocol.errors import LimitExceeded, WorkerFault
from protocol.limits import MESSAGE_BYTES_MAX


class Echo:
    """A room that answers with what it got, counts, waits for ever, or fails."""

    name = "echo"

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.produced = 0

    async def receive(self, message: bytes) -> bytes:
        if message == b"fail":
            raise RuntimeError("no")
        if message.startswith(b"sleep"):
            await asyncio.sleep(3600)
        return message * 2

    async def stream(self, message: bytes) -> AsyncIterator[bytes]:
        try:
            count = int(message)
            for index in range(abs(count)):
                self.produced += 1
                yield b"%d" % index
                await asyncio.sleep(0)
            if count < 0:
                await asyncio.sleep(3600)
        finally:
            self.closed.set()

    async def drain(self) -> None: ...


class Pair:
    """Both ends of one connection."""

    def __init__(self, room: Echo, port: FramePort, serving: asyncio.Task[None]) -> None:
        self.room = room
        self.port = port
        self.serving = serving

    async def close(self) -> None:
        await self.port.close()
        self.serving.cancel()
        await asyncio.gather(self.serving, return_exceptions=True)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    room = Echo()
    serving: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.set_result(asyncio.create_task(FrameServer(room, reader, writer).serve()))

    server = await asyncio.start_unix_server(accept, path=tmp_path / "s")
    port = FramePort(*await asyncio.open_unix_connection(tmp_path / "s"))
    made = Pair(room, port, await serving)
    yield made
    await made.close()
    server.close()


async def test_many_calls_at_once_each_get_their_own_answer(pair: Pair) -> None:
    messages = [b"%d" % index * (index % 50 + 1) for index in range(300)]
    answers = await asyncio.gather(*(pair.port.call(message) for message in messages))
    assert answers == [message * 2 for message in messages]


async def test_streams_keep_their_order_beside_one_another(pair: Pair) -> None:
    async def collect(count: int) -> list[bytes]:
        return [item async for item in pair.port.stream(b"%d" % count)]

    found = await asyncio.gather(*(collect(count) for count in (0, 1, 7, 500)))
    assert found == [[b"%d" % i for i in range(count)] for count in (0, 1, 7, 500)]


async def test_closing_a_stream_stops_its_producer(pair: Pair) -> None:
    stream = pair.port.stream(b"-3")
    assert [await anext(stream) for _ in range(3)] == [b"0", b"1", b"2"]
    assert not pair.room.closed.is_set()
    await stream.aclose()  # type: ignore[attr-defined]
    await asyncio.wait_for(pair.room.closed.wait(), 60)
    assert await pair.port.call(b"x") == b"xx"


async def test_a_reader_that_stalls_does_not_hold_up_the_others(pair: Pair) -> None:
    stalled = pair.port.stream(b"5000")
    assert await anext(stalled) == b"0"
    assert await asyncio.wait_for(pair.port.call(b"x"), 60) == b"xx"
    assert [item async for item in stalled][-1] == b"4999"


async def test_what_a_room_raises_is_a_fault_of_that_call_alone(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WorkerFault) as caught:
        await pair.port.call(b"fail")
    # Its text may hold what a message held: it is for the log, never for a client.
    assert caught.value.message == "the worker failed; its log says why"
    assert "RuntimeError: no" in caplog.text
    assert await pair.port.call(b"x") == b"xx"


@pytest.mark.parametrize("how", ["call", "stream"])
async def test_a_connection_that_is_lost_while_sending_is_a_worker_fault(
    pair: Pair, how: str
) -> None:
    asking = pair.port.call(b"x") if how == "call" else anext(pair.port.stream(b"1"))
    pair.port._writer.transport.abort()
    with pytest.raises(WorkerFault, match="being started again"):
        await asking
    assert not pair.port._waiting


async def test_a_call_that_is_given_up_while_it_is_sent_is_forgotten(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_unix_server(never_reads, path=tmp_path / "s")
    port = FramePort(*await asyncio.open_unix_connection(tmp_path / "s"))
    for ask in (port.call(bytes(2**22)), anext(port.stream(bytes(2**22)))):
        task = asyncio.ensure_future(ask)
        await asyncio.sleep(0.02)
        assert len(port._waiting) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not port._waiting
    gone.set()
    await port.close()
    server.close()


async def test_when_the_other_side_is_gone_everything_that_waits_fails(pair: Pair) -> None:
    waiting = asyncio.create_task(pair.port.call(b"sleep"))
    stream = pair.port.stream(b"-1")
    assert await anext(stream) == b"0"
    await asyncio.sleep(0)
    pair.serving.cancel()
    with pytest.raises(WorkerFault):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(WorkerFault):
        await asyncio.wait_for(anext(stream), 60)
    with pytest.raises(WorkerFault, match="being started again"):
        await pair.port.call(b"x")


async def test_when_the_caller_is_gone_running_calls_are_cancelled(pair: Pair) -> None:
    stream = pair.port.stream(b"-1")
    assert await anext(stream) == b"0"
    await pair.port.close()
    await asyncio.wait_for(pair.serving, 60)
    assert pair.room.closed.is_set()


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(pair: Pair) -> None:
    with pytest.raises(LimitExceeded, match=str(MESSAGE_BYTES_MAX)):
        await pair.port.call(bytes(MESSAGE_BYTES_MAX + 1))
    assert await pair.port.call(b"x") == b"xx"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "connection closed"),
        (b"\x00\x00", "connection closed"),
        (encode_frame(Kind.CALL, 1, b"abc")[:-1], "connection closed"),
        (b"\xff\xff\xff\xff\x01" + bytes(8), "announces"),
        (b"\x00\x00\x00\x00\x63" + bytes(8), "unknown kind"),
    ],
)
async def test_bytes_that_are_no_frame_are_a_fault(data: bytes, message: str) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    with pytest.raises(WorkerFault, match=message):
        await read_frame(reader)


async def test_a_frame_reads_back_as_it_was_written() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(encode_frame(Kind.ITEM, 2**63, b"payload"))
    assert await read_frame(reader) == (Kind.ITEM, 2**63, b"payload")
