"""Starting a worker's process from the embedded shell, and ending it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from actors.ports import RoomEntry
from actors.runtime.frames import FramePort, FrameServer
from actors.runtime.plan import Plan
from actors.runtime.worker_process import DRAIN, PING, PONG, READY
from protocol.errors import WorkerFault

# A model of a few hundred megabytes loads in seconds; a cold disk and a large one take minutes.
_START_SECONDS_MAX: Final = 600.0
_DRAIN_SECONDS_MAX: Final = 20.0
# The control loop of a worker is never busy: one that does not answer for this long is hung.
PATIENCE_SECONDS: Final = 30.0
_BEATS_PER_PATIENCE: Final = 6


class Child:
    """One worker process. `port` reaches its room while it lives."""

    def __init__(
        self, process: asyncio.subprocess.Process, port: FramePort, patience_seconds: float
    ) -> None:
        self.process = process
        self.port = port
        self._patience_seconds = patience_seconds
        self._beat = asyncio.create_task(self._heartbeat(), name="heartbeat")

    @classmethod
    async def start(
        cls,
        plan: Plan,
        name: str,
        rooms: RoomEntry,
        directory: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Child:
        """Start room `name` in a process and wait until it is ready. What it asks goes to `rooms`.

        Sockets lie in `directory`, whose path is at most 80 characters. A process that is not
        heard of for `patience_seconds` is killed. Raises WorkerFault if the
        process ends before it is ready, or is not ready in ten minutes.
        """
        connected: asyncio.Future[FramePort] = asyncio.get_running_loop().create_future()

        async def down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not connected.done():
                connected.set_result(FramePort(reader, writer))

        async def up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await FrameServer(rooms, reader, writer).serve()

        stem = f"{name}-{os.urandom(4).hex()}"
        down_path, up_path = directory / f"{stem}.down", directory / f"{stem}.up"
        down_server = await asyncio.start_unix_server(down, path=down_path)
        up_server = await asyncio.start_unix_server(up, path=up_path)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "actors.runtime.worker_process", name, str(down_path), str(up_path)),
                stdin=asyncio.subprocess.PIPE,
            )
            assert process.stdin is not None, "asked for a pipe"
            process.stdin.write(plan.encode() + b"\n")
            port = await _ready(process, connected)
        except BaseException:
            # Also when the shell stops while a model loads: nothing that was started is left.
            if connected.done() and not connected.cancelled():
                await connected.result().close()
            raise
        finally:
            down_server.close()
            up_server.close()
            down_path.unlink(missing_ok=True)
            up_path.unlink(missing_ok=True)
        return cls(process, port, patience_seconds)

    async def _heartbeat(self) -> None:
        loop = asyncio.get_running_loop()
        heard = loop.time()
        beat_seconds = self._patience_seconds / _BEATS_PER_PATIENCE
        while not self.port.closed.is_set():
            self.port.send_control(PING)
            with contextlib.suppress(asyncio.TimeoutError):
                line = await asyncio.wait_for(self.port.control.get(), beat_seconds)
                if line == PONG:
                    heard = loop.time()
                    await asyncio.sleep(beat_seconds)
            if loop.time() - heard > self._patience_seconds:
                self.process.kill()
                return

    async def died(self) -> str:
        """Waits for the end of the process; says how it ended."""
        code = await self.process.wait()
        await self.port.closed.wait()
        return f"the worker process {self.process.pid} ended with code {code}"

    async def stop(self) -> None:
        """Drain the room, then end the process; kill it if it does not end in time."""
        self.port.send_control(DRAIN)
        try:
            await asyncio.wait_for(self.process.wait(), _DRAIN_SECONDS_MAX)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self._beat.cancel()
        await asyncio.gather(self._beat, return_exceptions=True)
        await self.port.close()


async def _ready(
    process: asyncio.subprocess.Process, connected: asyncio.Future[FramePort]
) -> FramePort:
    async def ready() -> FramePort:
        port = await connected
        while await port.control.get() != READY:
            pass
        return port

    waiting = asyncio.create_task(ready())
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait(
            {waiting, ended}, timeout=_START_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        if waiting.done():
            return waiting.result()
        await _kill(process)
        raise WorkerFault(
            f"the worker process ended with code {process.returncode} before it was ready: "
            "its log says why"
        )
    except asyncio.CancelledError:
        await _kill(process)
        raise
    finally:
        waiting.cancel()
        ended.cancel()
        await asyncio.gather(waiting, ended, return_exceptions=True)


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
