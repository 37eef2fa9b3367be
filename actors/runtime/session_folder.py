"""The folder that Ray keeps a session in, and what is left of sessions that were killed.

Ray puts sockets and logs under /tmp, where its paths fit, and leaves them there when the service
dies by `kill -9`. Each folder of ours has a file that is locked for as long as its service lives:
the system takes the lock away with the process, however that ends. So a folder whose lock is free
is nobody's any more, and the next start removes it. One without such a file is none of ours.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

log = logging.getLogger("huginn.runtime")

# Ray's socket paths leave about 40 characters for the folder.
PLACE: Final = Path("/tmp")
PREFIX: Final = "hg-"
LOCK: Final = "huginn.lock"


class SessionFolder:
    """A new folder `path` of this user's alone, locked until `remove` or the process's end.
    `session`, in it, is Ray's own, which it opens to everybody: nobody else gets that far."""

    def __init__(self, place: Path = PLACE) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self.session = self.path / "ray"
        # Locked before it has its name: whoever sweeps finds no file, or one that is held.
        unnamed = self.path / f".{LOCK}"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / LOCK)

    def remove(self) -> None:
        """The folder and all in it. Twice is once."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(place: Path = PLACE) -> int:
    """Remove the folders of this user's sessions that were killed; how many."""
    removed = 0
    for path in sorted(place.glob(f"{PREFIX}*")):
        try:
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
        finally:
            os.close(lock)
    if removed:
        log.info("removed what %d killed services left under %s", removed, place)
    return removed
