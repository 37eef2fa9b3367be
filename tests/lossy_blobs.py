"""Files of large bodies on a disk that can fail at the Nth operation: see `lossy_disk`."""

from __future__ import annotations

import errno
from pathlib import Path

from store.blobs import BlobFiles
from tests.lossy_disk import CUT, LossyDisk


class LossyBlobs(BlobFiles):
    """Files on `disk`: each sync and each unlink is an operation of it, and a power cut takes back
    an unlink that was not synced."""

    def __init__(self, root: Path, disk: LossyDisk) -> None:
        self._disk = disk
        self._unsynced: dict[Path, bytes] = {}
        super().__init__(root, fsync=lambda _: self._step())

    def _step(self) -> None:
        if self._disk.step():
            raise OSError(errno.EIO, "the disk failed")

    def remove(self, path: Path) -> bool:
        self._step()
        if path.exists():
            self._unsynced[path] = path.read_bytes()
        removed = super().remove(path)
        self._unsynced.pop(path, None)
        return removed

    def power_off(self) -> None:
        """Takes back what was not synced."""
        for path, body in self._unsynced.items() if self._disk.mode == CUT else ():
            path.write_bytes(body)
