"""Messages over a Unix socket: how the embedded shell reaches a room in another process.

A frame is u32be(length) ‖ u8(kind) ‖ u64be(call) ‖ payload. The caller numbers its calls; kinds:

    CALL, STREAM   a message; answered by one REPLY, or by ITEMs and an END
    CANCEL         the caller dropped this stream: its producer is closed
    REPLY, ITEM    an answer, an item of an answer
    END            the stream is complete
    LOST           the room raised something that is no reply; its log says what
    CONTROL        a JSON line between shell and process: ready, drain, ping, pong

A broken or half-written frame ends the connection; whatever waited on it fails with WorkerFault.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from enum import IntEnum
from functools import partial
from typing import Final

from actors.ports import RoomEntry
from protocol.errors import LimitExceeded, WorkerFault
from protocol.limits import MESSAGE_BYTES_MAX

log = logging.getLogger("huginn.frames")

_HEAD: Final = struct.Struct(">IBQ")
# What a caller is told of an exception: its text may hold what a message held.
_RAISED: Final = b"the worker failed; its log says why"


class Kind(IntEnum):
    CALL = 1
    STREAM = 2
    CANCEL = 3
    REPLY = 4
    ITEM = 5
    END = 6
    LOST = 7
    CONTROL = 8


def encode_frame(kind: Kind, call: int, payload: bytes) -> bytes:
    """One frame; raises LimitExceeded for a payload over MESSAGE_BYTES_MAX."""
    if len(payload) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(
            f"a message of {len(payload)} bytes: at most {MESSAGE_BYTES_MAX} go between rooms"
        )
    return _HEAD.pack(len(payload), kind, call) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[Kind, int, bytes]:
    """The next frame; raises WorkerFault when the other side is gone or talks nonsense."""
    try:
        length, kind, call = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if length > MESSAGE_BYTES_MAX:
            raise WorkerFault(f"a frame announces {length} bytes, at most {MESSAGE_BYTES_MAX}")
        return Kind(kind), call, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise WorkerFault("the worker process is gone: the connection closed") from error
    except ValueError as error:
        raise WorkerFault(f"a frame of unknown kind: {error}") from error


class FramePort:
    """The caller's side of one connection: numbered calls and streams, all at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls = 0
        self._waiting: dict[int, asyncio.Queue[tuple[Kind, bytes]]] = {}
        self.control: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._task = asyncio.create_task(self._read(), name="frames.read")

    async def _read(self) -> None:
        try:
            while True:
                kind, call, payload = await read_frame(self._reader)
                if kind is Kind.CONTROL:
                    self.control.put_nowait(payload)
                elif (queue := self._waiting.get(call)) is not None:
                    # Unbounded on purpose: an answer has no more items than tokens, and one
                    # reader that stalls must not hold up the others on this connection.
                    queue.put_nowait((kind, payload))
        except WorkerFault:
            pass
        finally:
            self.closed.set()
            self._writer.close()
            for queue in self._waiting.values():
                queue.put_nowait((Kind.LOST, b"the worker process died"))

    def send_control(self, line: bytes) -> None:
        if not self.closed.is_set():
            self._writer.write(encode_frame(Kind.CONTROL, 0, line))

    def _number(self) -> int:
        """The number of a new call, on which answers are taken from now on."""
        if self.closed.is_set():
            raise WorkerFault("the worker process died; it is being started again")
        self._calls += 1
        self._waiting[self._calls] = asyncio.Queue()
        return self._calls

    async def _send(self, kind: Kind, call: int, message: bytes) -> None:
        self._writer.write(encode_frame(kind, call, message))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise WorkerFault("the worker process died; it is being started again") from error

    async def call(self, message: bytes) -> bytes:
        """One message, one reply."""
        call = self._number()
        try:
            await self._send(Kind.CALL, call, message)
            kind, payload = await self._waiting[call].get()
            if kind is not Kind.REPLY:
                raise WorkerFault(payload.decode("utf-8", "replace"))
            return payload
        finally:
            del self._waiting[call]

    async def stream(self, message: bytes) -> AsyncIterator[bytes]:
        """One message, many items. Closing the iterator closes the producer."""
        call = self._number()
        complete = False
        try:
            await self._send(Kind.STREAM, call, message)
            while True:
                kind, payload = await self._waiting[call].get()
                if kind is Kind.ITEM:
                    yield payload
                    continue
                complete = True
                if kind is Kind.LOST:
                    raise WorkerFault(payload.decode("utf-8", "replace"))
                return
        finally:
            del self._waiting[call]
            if not complete and not self.closed.is_set():
                self._writer.write(encode_frame(Kind.CANCEL, call, b""))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class FrameServer:
    """The room's side of one connection."""

    def __init__(
        self, room: RoomEntry, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._room = room
        self._reader = reader
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.control: asyncio.Queue[bytes] = asyncio.Queue()

    async def _send(self, kind: Kind, call: int, payload: bytes) -> None:
        self._writer.write(encode_frame(kind, call, payload))
        await self._writer.drain()

    async def send_control(self, line: bytes) -> None:
        await self._send(Kind.CONTROL, 0, line)

    async def serve(self) -> None:
        """Answer until the other side is gone; then every running call is cancelled."""
        try:
            while True:
                kind, call, payload = await read_frame(self._reader)
                if kind is Kind.CONTROL:
                    self.control.put_nowait(payload)
                elif kind is Kind.CANCEL:
                    if (task := self._tasks.get(call)) is not None:
                        task.cancel()
                elif kind in (Kind.CALL, Kind.STREAM):
                    task = asyncio.create_task(self._answer(kind, call, payload))
                    self._tasks[call] = task
                    task.add_done_callback(partial(self._forget, call))
        except WorkerFault:
            pass
        finally:
            running = list(self._tasks.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._writer.close()

    def _forget(self, call: int, _: asyncio.Task[None]) -> None:
        self._tasks.pop(call, None)

    async def _answer(self, kind: Kind, call: int, message: bytes) -> None:
        try:
            if kind is Kind.CALL:
                await self._send(Kind.REPLY, call, await self._room.receive(message))
                return
            items = self._room.stream(message)
            try:
                async for item in items:
                    await self._send(Kind.ITEM, call, item)
            finally:
                close = getattr(items, "aclose", None)
                if close is not None:
                    await close()
            await self._send(Kind.END, call, b"")
        except ConnectionError:
            return
        except Exception:
            log.exception("a call ended without a reply")
            with contextlib.suppress(ConnectionError):
                await self._send(Kind.LOST, call, _RAISED)
