"""A disk that is full, or broken, when a test says so: an SQLite VFS, the default of this process.

It is there for what an installation opens by itself. `refusal` is what every write is refused with,
whatever its place: so a checkpoint finds no room either.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

_names = itertools.count()
# By its name: below "the default" this one would find itself.
_BASE: Final = "unix"

FULL: Final = "full"
QUOTA: Final = "quota"
BROKEN: Final = "broken"


class SwitchedDisk(apsw.VFS):
    """`refusal`: None, FULL (SQLITE_FULL), QUOTA (a write that fails with EDQUOT) or BROKEN (EIO).
    `only`: the beginning of the names of the files that it is for; the others are sound. `refused`
    counts."""

    def __init__(self) -> None:
        self.name = f"switched-{next(_names)}"
        self.refusal: str | None = None
        self.only = ""
        self.refused = 0
        super().__init__(self.name, _BASE, makedefault=True)

    def xOpen(self, name: object, flags: list[int]) -> SwitchedFile:
        return SwitchedFile(self, name, flags)

    def xGetLastError(self) -> tuple[int, str | None]:
        return (errno.EDQUOT if self.refusal == QUOTA else errno.EIO), None


class SwitchedFile(apsw.VFSFile):
    def __init__(self, disk: SwitchedDisk, name: object, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._file = Path(path).name
        super().__init__(_BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        refusal = self._disk.refusal
        if refusal is not None and self._file.startswith(self._disk.only):
            self._disk.refused += 1
            if refusal == FULL:
                raise apsw.FullError("no space is left")
            error = apsw.IOError("a write failed")
            error.extendedresult = apsw.SQLITE_IOERR_WRITE  # type: ignore[attr-defined]
            raise error
        super().xWrite(data, offset)


@contextmanager
def switched_disk() -> Iterator[SwitchedDisk]:
    """A sound disk under every database that is opened meanwhile, to be switched."""
    disk = SwitchedDisk()
    try:
        yield disk
    finally:
        disk.unregister()
