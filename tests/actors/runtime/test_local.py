"""The embedded shell: what runs, what is left, and what a start that fails leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from actors.authority.room import AuthorityRoom
from actors.gateway.front import FrontRoom
from actors.room import Call
from actors.ropes.room import RopesRoom
from actors.runtime.child import Child
from actors.runtime.local import WORKER, EmbeddedShell, LocalMailbox
from actors.runtime.plan import OPERATOR, operator_key, prepare
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.errors import CapabilityError, StoreFault, Unavailable, WorkerFault
from protocol.messages import Empty
from protocol.messages.authority import Revocations
from protocol.messages.worker import ModelInfo
from tests.installations import alive, processes_below, tiny_config


async def shell_at(home: Path) -> EmbeddedShell:
    plan = await prepare(tiny_config(home), SystemClock(), SystemEntropy())
    return EmbeddedShell(plan)


async def child_of(shell: EmbeddedShell) -> Child:
    async with asyncio.timeout(60):
        while shell.mailbox.child is None:
            await asyncio.sleep(0.02)
    return shell.mailbox.child


async def test_the_worker_has_a_process_of_its_own_and_ends_with_the_shell(tmp_path: Path) -> None:
    shell = await shell_at(tmp_path / "home")
    await shell.start()
    child = await child_of(shell)
    assert child.process.pid in processes_below(os.getpid())
    await shell.stop()
    assert not alive(child.process.pid)
    with pytest.raises(Unavailable, match="ropes"):
        await shell.mailbox.call("ropes", b"")


@pytest.mark.req("OPS-6")
async def test_a_worker_that_is_killed_is_replaced_by_another(tmp_path: Path) -> None:
    shell = await shell_at(tmp_path / "home")
    await shell.start()
    first = await child_of(shell)
    os.kill(first.process.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while shell.mailbox.child is first:
            await asyncio.sleep(0.02)
    second = await child_of(shell)
    assert second.process.pid != first.process.pid
    assert alive(second.process.pid)
    await shell.stop()


async def test_a_shell_whose_port_is_taken_leaves_nothing_running(tmp_path: Path) -> None:
    one = await shell_at(tmp_path / "one")
    await one.start()
    await child_of(one)
    config = tiny_config(tmp_path / "two", port=one._plan.config.port)
    two = EmbeddedShell(await prepare(config, SystemClock(), SystemEntropy()))
    before = set(processes_below(os.getpid()))
    with pytest.raises(OSError, match=str(config.port)):
        await two.start()
    assert {pid for pid in processes_below(os.getpid()) if alive(pid)} <= before
    await one.stop()


async def test_before_the_worker_is_there_asking_it_is_a_fault_that_says_so() -> None:
    with pytest.raises(WorkerFault, match="being started"):
        await LocalMailbox().call("worker", b"")


@pytest.mark.req("AUT-4")
async def test_a_revocation_while_the_worker_starts_reaches_it(tmp_path: Path) -> None:
    shell = await shell_at(tmp_path / "home")
    key = operator_key(tmp_path / "home", SystemEntropy())

    class Late(AuthorityRoom):
        """Its answer to the worker, which cannot be reached yet, is overtaken by a revocation."""

        async def on_current(self, call: Call, ask: Empty) -> Revocations:
            answer = await super().on_current(call, ask)
            if call.handle.audience == self.world.room_to_key[WORKER]:
                await self._revoke(OPERATOR)
            return answer

    await shell.start()
    shell.mailbox.rooms["authority"].__class__ = Late
    gateway = shell.mailbox.rooms["gateway"]
    assert isinstance(gateway, FrontRoom)
    operator = gateway._gateway.authenticate(f"Bearer {key}", "request")
    await child_of(shell)

    async def ask_until_refused() -> None:
        async with asyncio.timeout(60):
            while True:
                await operator.ask(WORKER, "info", Empty(), ModelInfo)
                await asyncio.sleep(0.05)

    with pytest.raises(CapabilityError, match="revoked"):
        await ask_until_refused()
    await shell.stop()


async def test_a_room_that_cannot_be_drained_keeps_no_other_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shell = await shell_at(tmp_path / "home")
    await shell.start()
    child = await child_of(shell)
    ropes, authority = shell.mailbox.rooms["ropes"], shell.mailbox.rooms["authority"]

    class Stuck(RopesRoom):
        async def drain(self) -> None:
            await super().drain()
            raise StoreFault("the disk is gone")

    ropes.__class__ = Stuck
    await shell.stop()
    assert "the ropes room could not be drained" in caplog.text
    assert not alive(child.process.pid)
    assert isinstance(authority, AuthorityRoom)
    with pytest.raises(StoreFault, match="closed"):
        await authority._principals.revoke(OPERATOR)
