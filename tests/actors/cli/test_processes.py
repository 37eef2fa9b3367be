"""What /proc says of processes, held against processes that the test started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from actors.cli.processes import (
    descendants,
    look,
    ports_on_all_interfaces,
    signal_descendants,
    start_ticks,
)

_SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
_FAMILY = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {_SLEEPER!r}])\n"
    "time.sleep(60)"
)


def test_this_process_is_found_under_its_parent() -> None:
    found = look(os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert found.rss_bytes > 1_000_000
    assert start_ticks(os.getpid()) == found.start_ticks


def test_an_ended_process_is_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # A zombie now: its number is taken, and it does nothing any more.
        assert look(child.pid) is None
    assert start_ticks(child.pid) is None


def test_descendants_are_seen_and_signalled() -> None:
    family = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE, text=True)
    with family:
        assert family.stdout is not None
        assert family.stdout.readline() == "up\n"
        below = descendants(family.pid)
        assert [process.parent for process in below] == [family.pid]
        assert family.pid in {process.pid for process in descendants(os.getpid())}
        signal_descendants(family.pid, signal.SIGKILL)
        # The grandchild's end closes its copy of the pipe; its parent still has the other.
        family.kill()
        assert family.stdout.read() == ""
    assert look(below[0].pid) is None


def test_ports_that_everybody_reaches() -> None:
    with socket.socket() as wide, socket.socket() as narrow:
        wide.bind(("0.0.0.0", 0))
        narrow.bind(("127.0.0.1", 0))
        wide.listen()
        narrow.listen()
        found = ports_on_all_interfaces([os.getpid()])
        assert wide.getsockname()[1] in found
        assert narrow.getsockname()[1] not in found
    assert wide not in ports_on_all_interfaces([])
