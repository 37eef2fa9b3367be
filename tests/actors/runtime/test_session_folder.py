"""Folders under /tmp: one's own, and none but those of services that were killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from actors.runtime.session_folder import LOCK, PREFIX, SessionFolder, sweep

SESSION = """
import sys, time
from pathlib import Path
from actors.runtime.session_folder import SessionFolder
folder = SessionFolder(Path(sys.argv[1]))
(folder.path / "session_latest").mkdir()
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.mark.req("OPS-6")
def test_what_a_killed_service_left_goes_and_nothing_else(tmp_path: Path) -> None:
    mine = SessionFolder(tmp_path)
    # Of another program, a file, a link, and one that stopped while it was made.
    for name in ("other", "made"):
        (tmp_path / f"{PREFIX}{name}").mkdir()
    (tmp_path / f"{PREFIX}made" / f".{LOCK}").touch()
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(mine.path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / LOCK).touch()
    before = sorted(tmp_path.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        assert sweep(tmp_path) == 0
        assert (theirs / "session_latest").is_dir()
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert sweep(tmp_path) == 1
    assert sorted(tmp_path.iterdir()) == before
    mine.remove()
    mine.remove()
    assert not mine.path.exists()
    assert sweep(tmp_path) == 0


def test_it_is_this_users_alone_and_short() -> None:
    folder = SessionFolder()
    try:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder.path / LOCK).stat().st_mode) == 0o600
        assert len(str(folder.session)) <= 40
    finally:
        folder.remove()
