"""Files that are there after a power cut, or not there at all.

A new file's bytes are synced before its name appears, and the directory that holds the name is
synced before anybody is told. Without the last step a rename is lost now and then in a power cut,
although every byte of the file was safe.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

Sync = Callable[[int], None]

# Every unfinished file carries this ending, so that a sweep knows it for what it is.
UNFINISHED: Final = ".unfinished"
# The disk's room, and a user's part of it.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def lacks_room(error: BaseException) -> bool:
    """Whether `error` is the system's for a disk or a quota that is full, and nothing worse."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def sync_directory(path: Path, *, fsync: Sync = os.fsync) -> None:
    """Makes the names in the directory `path` durable; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, fsync: Sync = os.fsync) -> None:
    """Creates `path` (mode 0700) and what is missing above it, durably; raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent, fsync=fsync)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent, fsync=fsync)


def write_unfinished(path: Path, body: bytes, *, mode: int, fsync: Sync = os.fsync) -> None:
    """Writes `body` to the new file `path` and syncs it; the caller gives it its final name.

    Raises FileExistsError if `path` is there, and OSError if the disk refuses; what was begun is
    then removed again.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        fsync(descriptor)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
