"""A worker in a process of its own, for the embedded shell.

Run as `python -m actors.runtime.worker_process ROOM DOWN_SOCKET UP_SOCKET`. Standard input carries
the plan (one line of JSON) and then nothing: its end means that the shell is gone, and so is this
process. Messages come over the Unix socket that the command line names. The
control line `ready` says that the model is loaded; `drain` asks to finish and end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

from actors.runtime.frames import FramePort, FrameServer
from actors.runtime.garbage import spare_the_old
from actors.runtime.logs import configure
from actors.runtime.plan import Plan
from actors.runtime.wiring import build_room
from protocol.errors import HuginnError

log = logging.getLogger("huginn.worker_process")

_STDIN: Final = 0
READY = b"ready"
DRAIN = b"drain"
PING = b"ping"
PONG = b"pong"


class Upward:
    """The mailbox of this process: whatever its room asks goes up to the shell."""

    def __init__(self, port: FramePort) -> None:
        self._port = port

    async def call(self, room: str, message: bytes) -> bytes:
        return await self._port.call(message)

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        return self._port.stream(message)


async def run(plan: Plan, name: str, down_path: str, up_path: str) -> None:
    """Serve room `name` on the connection to `down_path` until the shell is gone or says drain.

    What the room itself asks of other rooms goes over a second connection, to `up_path`.
    """
    up_reader, up_writer = await asyncio.open_unix_connection(up_path)
    upward = FramePort(up_reader, up_writer)
    # Loading a model takes seconds and holds no lock: the loop stays free to hear of the end.
    room = await asyncio.to_thread(build_room, plan, name, Upward(upward))
    await room.start()
    spare_the_old()
    reader, writer = await asyncio.open_unix_connection(down_path)
    server = FrameServer(room, reader, writer)
    await server.send_control(READY)
    serving = asyncio.create_task(server.serve())
    controlling = asyncio.create_task(_control(server))
    await asyncio.wait({serving, controlling}, return_when=asyncio.FIRST_COMPLETED)
    await room.refusals.settle()
    await room.drain()
    serving.cancel()
    controlling.cancel()
    await asyncio.gather(serving, controlling, return_exceptions=True)
    await upward.close()


async def _control(server: FrameServer) -> None:
    while True:
        line = await server.control.get()
        if line == PING:
            await server.send_control(PONG)
        elif line == DRAIN:
            return


def _exit_with_parent() -> None:
    """Die when standard input ends: nothing may outlive the shell, however that died."""
    while os.read(_STDIN, 1):
        pass
    os._exit(1)


def _first_line() -> bytes:
    # Unbuffered: a buffered reader's lock, held by the thread above, would abort the interpreter.
    line = bytearray()
    while (byte := os.read(_STDIN, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def main() -> None:
    # Until this process serves, all that is made stays: there is nothing to collect.
    gc.disable()
    name, down_path, up_path = sys.argv[1:4]
    plan = Plan.decode(_first_line())
    configure(plan.config)
    # Ctrl-C reaches every process of a terminal; the shell hears it too, and says drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        asyncio.run(run(plan, name, down_path, up_path))
    except HuginnError as error:
        log.error("%s", error.message)
        sys.exit(1)


if __name__ == "__main__":
    main()
