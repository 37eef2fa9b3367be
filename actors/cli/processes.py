"""Processes of this machine, read from /proc: who is whose child, and who listens where.

On systems without /proc every answer is empty: what needs them then says less, and still works.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LISTENING: Final = "0A"
_ANYWHERE: Final = frozenset({"00000000", "0" * 32})


@dataclass(frozen=True)
class Process:
    """`rss_bytes` is resident memory, shared pages counted in each process."""

    pid: int
    parent: int
    command: str
    rss_bytes: int
    cpu_seconds: float
    start_ticks: int


def look(pid: int) -> Process | None:
    """The process `pid`, or None if there is none (a zombie is none)."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        command = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold anything, parentheses too.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    words = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        command=words or name,
        rss_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        start_ticks=int(fields[19]),
    )


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since the machine did: with the pid, its identity."""
    found = look(pid)
    return None if found is None else found.start_ticks


def descendants(pid: int) -> list[Process]:
    """Every process below `pid`, parents before children; not `pid` itself."""
    children: dict[int, list[Process]] = {}
    for entry in _PROC.glob("[0-9]*"):
        found = look(int(entry.name))
        if found is not None:
            children.setdefault(found.parent, []).append(found)
    below: list[Process] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            below.append(child)
            waiting.append(child.pid)
    return below


def signal_descendants(pid: int, number: signal.Signals) -> None:
    """Send a signal to every process below `pid`."""
    for process in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def ports_on_all_interfaces(pids: Iterable[int]) -> list[int]:
    """The TCP ports that any of `pids` listens on at every interface, in order."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    ports = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                address, _, port = fields[1].partition(":")
                if fields[3] == _LISTENING and address in _ANYWHERE and fields[9] in inodes:
                    ports.add(int(port, 16))
    return sorted(ports)


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found
