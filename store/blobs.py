"""Large bodies as files: `aa/bb/<digest>`, named by the digest in hexadecimal.

A file is synced, then named, then its directory is synced; only then may a row refer to it. So a
crash leaves at most an unfinished file or one that no row names, and `fsck` reclaims both. Files
are read-only (0400): whoever writes through another link is caught by the hash on the next read.

One thread writes here, the database's writer, so no file is removed while a put relies on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protocol.errors import CorruptObject
from protocol.ids import ObjectId
from store.files import UNFINISHED, Sync, make_directory, sync_directory, write_unfinished

_DIGEST_NAME: Final = re.compile(r"[0-9a-f]{64}")


class BlobFiles:
    """The files under `root`, created (0700) if missing; `fsync` is the system's, or a test's."""

    def __init__(self, root: Path, *, fsync: Sync = os.fsync) -> None:
        self.root = root
        self._fsync = fsync
        make_directory(root, fsync=fsync)

    def path(self, digest: bytes) -> Path:
        """Where the body with this digest lies, or would."""
        name = digest.hex()
        return self.root / name[:2] / name[2:4] / name

    def put(self, id: ObjectId, body: bytes) -> None:
        """Makes `body` durable under `id`, in place of damaged bytes if there are such.

        Raises OSError.
        """
        path = self.path(id.digest)
        make_directory(path.parent, fsync=self._fsync)
        if not self._holds(path, id):
            unfinished = path.with_name(path.name + UNFINISHED)
            unfinished.unlink(missing_ok=True)
            write_unfinished(unfinished, body, mode=0o400, fsync=self._fsync)
            os.rename(unfinished, path)
        # Also when the file was there: who wrote it may have died before this step.
        sync_directory(path.parent, fsync=self._fsync)

    def get(self, id: ObjectId) -> bytes:
        """The body of `id`; raises FileNotFoundError, OSError, or CorruptObject (ID-5)."""
        return id.check(self.path(id.digest).read_bytes())

    def remove(self, path: Path) -> bool:
        """Removes the file at `path`, durably; whether it was there. Raises OSError."""
        if not path.exists():
            return False
        path.unlink()
        sync_directory(path.parent, fsync=self._fsync)
        return True

    def written(self) -> list[Path]:
        """Every file that a put wrote, or began: what lies under another name is not ours."""
        return [
            path
            for path in self.files()
            if _DIGEST_NAME.fullmatch(name := path.name.removesuffix(UNFINISHED))
            and self.path(bytes.fromhex(name)).parent == path.parent
        ]

    def files(self) -> Iterator[Path]:
        """Every file below the root, whatever its name, in no order."""
        for directory, _, names in os.walk(self.root):
            for name in names:
                yield Path(directory) / name

    @staticmethod
    def _holds(path: Path, id: ObjectId) -> bool:
        try:
            id.check(path.read_bytes())
        except (OSError, CorruptObject):
            # Absent, damaged or unreadable: each is mended by writing it anew.
            return False
        return True
