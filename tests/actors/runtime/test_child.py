"""A worker's process: it must become ready, and it must not outlive its shell."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from actors.runtime.child import Child
from actors.runtime.local import LocalMailbox, _Rooms
from actors.runtime.plan import prepare
from actors.runtime.wiring import build_room
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.errors import WorkerFault
from tests.installations import alive, processes_below, tiny_config, tiny_home

SHELL = """
    import asyncio, sys
    from pathlib import Path
    from actors.config import Config
    from actors.runtime.local import EmbeddedShell
    from actors.runtime.plan import prepare
    from actors.runtime.world import SystemClock, SystemEntropy

    async def main():
        config = Config(home=sys.argv[1], port=0, profile="tiny-gemma", shell="embedded")
        shell = EmbeddedShell(await prepare(config, SystemClock(), SystemEntropy()))
        await shell.start()
        while shell.mailbox.child is None:
            await asyncio.sleep(0.02)
        print(shell.mailbox.child.process.pid, flush=True)
        await asyncio.sleep(3600)

    asyncio.run(main())
"""


async def test_a_process_that_cannot_start_says_so(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    plan = await prepare(config, SystemClock(), SystemEntropy())
    (config.home_path / "models" / "tiny-gemma.gguf").write_bytes(b"not a model")
    with pytest.raises(WorkerFault, match="code 1 before it was ready"):
        await Child.start(plan, "worker", _Rooms(LocalMailbox()), tmp_path)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_shell(tmp_path: Path, how: signal.Signals) -> None:
    home = tiny_home(tmp_path / "home")
    shell = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SHELL), str(home)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    assert alive(pid)
    os.kill(shell.pid, how)
    shell.wait(timeout=60)
    shell.stdout.close()
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


async def test_a_hung_process_is_killed_at_the_end_of_its_patience(tmp_path: Path) -> None:
    plan = await prepare(tiny_config(tmp_path / "home"), SystemClock(), SystemEntropy())
    mailbox = LocalMailbox()
    mailbox.rooms["authority"] = build_room(plan, "authority", mailbox)
    child = await Child.start(plan, "worker", _Rooms(mailbox), tmp_path, patience_seconds=3.0)
    await asyncio.sleep(3.5)
    assert alive(child.process.pid), "one that answers lives on"
    os.kill(child.process.pid, signal.SIGSTOP)
    assert "ended with code -9" in await asyncio.wait_for(child.died(), 60)
    await child.stop()
    await mailbox.rooms["authority"].drain()


async def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    plan = await prepare(tiny_config(tmp_path / "home"), SystemClock(), SystemEntropy())
    before = set(processes_below(os.getpid()))

    class Silent(LocalMailbox):
        """An authority that never answers: the worker waits for it, and is never ready."""

        async def call(self, room: str, message: bytes) -> bytes:
            asked.set()
            await asyncio.sleep(3600)
            raise AssertionError

    asked = asyncio.Event()
    starting = asyncio.create_task(Child.start(plan, "worker", _Rooms(Silent()), tmp_path))
    await asyncio.wait_for(asked.wait(), 60)
    (pid,) = set(processes_below(os.getpid())) - before
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert not alive(pid)
