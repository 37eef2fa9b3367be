"""Children that a crash test kills: started at a kill point, and what they said before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# How often each kill at a random moment is tried.
ROUNDS = int(os.environ.get("HUGINN_CRASH_ROUNDS", "1"))


def start(module: str, folder: Path, when: str, count: int, *flags: str) -> subprocess.Popen[bytes]:
    """`python -m module` at work in `folder`, to be killed the `count`-th time it is at `when`."""
    command = [sys.executable, "-m", module, str(folder), when, str(count), *flags]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def killed(child: subprocess.Popen[bytes], seen: bytes = b"") -> list[int]:
    """The numbers that it acknowledged; asserts that it was killed before it was done."""
    said = seen + child.communicate(timeout=120)[0]
    assert child.returncode == -signal.SIGKILL
    assert b"done" not in said
    # What stands after the last line end was not wholly said.
    return [int(line) for line in said[: said.rfind(b"\n") + 1].split()]
