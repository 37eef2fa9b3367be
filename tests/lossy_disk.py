"""A disk that can fail at the Nth operation and forget what was not synced: an SQLite VFS. And the
database that such a disk finds out.

Every write and truncation is undone by `power_off` unless a sync of its file came after it. That
is what a power cut does, and more than a killed process suffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from store.sqlite import Database

CUT, TORN, EIO = "cut", "torn", "eio"


class LossyDisk(apsw.VFS):
    """Fails at operation `fail_at` (1-based; 0: never).

    `mode` CUT: from then on everything fails, and unsynced bytes are lost. TORN: likewise, but
    unsynced bytes stay and half of the last write too. EIO: this operation fails, the next do not;
    a sync that fails loses what it should have made durable.
    """

    def __init__(self, name: str, *, fail_at: int = 0, mode: str = CUT) -> None:
        self.name = name
        self.fail_at = fail_at
        self.mode = mode
        self.operations = 0
        self.dead = False
        self.undo: dict[str, list[tuple[int, bytes, int]]] = {}
        super().__init__(name, "")

    def xOpen(self, name: object, flags: list[int]) -> LossyFile:
        return LossyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        # SQLite deletes a log only on closing, and there it takes no error.
        if self.step():
            return
        super().xDelete(filename, syncdir)
        self.undo.pop(filename, None)

    def step(self) -> bool:
        """Counts an operation; whether it fails."""
        if self.dead:
            return True
        self.operations += 1
        failing = self.operations == self.fail_at
        self.dead = failing and self.mode != EIO
        return failing

    def power_off(self) -> None:
        """Takes back what was not synced, after every file was closed."""
        if self.mode != CUT:
            return
        for filename, steps in self.undo.items():
            if not Path(filename).exists():
                continue
            with Path(filename).open("r+b") as file:
                for offset, old, size in reversed(steps):
                    file.seek(offset)
                    file.write(old)
                    file.truncate(size)


class LossyFile(apsw.VFSFile):
    def __init__(self, disk: LossyDisk, name: object, flags: list[int]) -> None:
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("", name, flags)

    def _remember(self, offset: int, length: int) -> None:
        size = self.xFileSize()
        old = super().xRead(min(length, max(0, size - offset)), offset) if offset < size else b""
        self.disk.undo.setdefault(self.path, []).append((offset, old, size))

    def xWrite(self, data: bytes, offset: int) -> None:
        was_dead = self.disk.dead
        if self.disk.step():
            if self.disk.mode == TORN and not was_dead:
                super().xWrite(bytes(data)[: len(data) // 2], offset)
            raise apsw.IOError("the disk failed to write")
        self._remember(offset, len(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        if self.disk.step():
            raise apsw.IOError("the disk failed to truncate")
        self._remember(size, max(0, self.xFileSize() - size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        was_dead = self.disk.dead
        if self.disk.step():
            if self.disk.mode == EIO and not was_dead:
                # The kernel marks the pages clean although they never arrived.
                for offset, old, size in reversed(self.disk.undo.pop(self.path, [])):
                    super().xWrite(old, offset)
                    super().xTruncate(size)
            raise apsw.IOError("the disk failed to sync")
        # No real sync: this disk keeps its own account of what is durable.
        self.disk.undo.pop(self.path, None)


class WeakDatabase(Database):
    """A database like ours, with the one setting that loses commits."""

    def _open(self, migrations: Sequence[str]) -> apsw.Connection:
        connection = super()._open(migrations)
        connection.pragma("synchronous", "NORMAL")
        return connection
