"""The worker's process: what it does with its standard input and its connections."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors.runtime.plan import Plan, prepare
from actors.runtime.world import SystemClock, SystemEntropy
from tests.installations import alive, tiny_config

COMMAND = [sys.executable, "-m", "actors.runtime.worker_process", "worker"]


@pytest.fixture
async def plan(tmp_path: Path) -> Plan:
    return await prepare(tiny_config(tmp_path / "home"), SystemClock(), SystemEntropy())


def test_it_loads_no_other_room() -> None:
    """What a restart of a worker waits for is its own."""
    program = """
import sys
import actors.runtime.worker_process, actors.worker.room, actors.worker.backends.llama
others = ("assembler", "authority", "compiler", "events", "gateway", "muninn", "ropes")
loaded = [room for room in others if f"actors.{room}.room" in sys.modules]
print([*loaded, *(name for name in ("aiohttp", "ray") if name in sys.modules)])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.strip() == "[]"


async def test_without_a_shell_to_connect_to_it_ends(plan: Plan, tmp_path: Path) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, str(tmp_path / "down"), str(tmp_path / "up")],
        input=plan.encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0


def test_it_ends_with_its_standard_input(tmp_path: Path) -> None:
    """Before the plan is complete, too: half a line and the end is no plan."""
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path / "down"), str(tmp_path / "up")],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(b'{"config":')
    process.stdin.flush()
    time.sleep(0.2)
    assert alive(process.pid)
    process.stdin.close()
    assert process.wait(timeout=60) != 0
    assert not os.path.exists(tmp_path / "down")
