"""Keys at rest: one file for each key, 0600 in a directory 0700, made once and whole (AUT-8).

A key appears under its name complete and synced, or not at all: it is written beside, synced, and
linked into place, so of two processes that make the same key one wins and both read the winner's.
A file that others may read, that is not ours, or that has the wrong length is refused: quietly
accepting it would make the permissions a decoration, and quietly replacing it would lose a key.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from protocol.errors import ContentError, DiskFull, StoreFault
from store.files import (
    UNFINISHED,
    lacks_room,
    make_directory,
    sync_directory,
    write_unfinished,
)

Entropy = Callable[[int], bytes]

SEED_BYTES: Final = 32
# A secret of this many bytes at most: keys are 16 to 64 bytes, this only bounds a mistake.
SECRET_BYTES_MAX: Final = 4096
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class KeyStore:
    """The keys in the directory `root`, created if missing; `entropy(n)` gives n random bytes.

    Raises StoreFault if the directory is open to others or the disk refuses.
    """

    def __init__(self, root: Path, *, entropy: Entropy) -> None:
        self.root = root
        self._entropy = entropy
        try:
            make_directory(root)
            _check_private(os.stat(root), root, "700")
        except OSError as error:
            raise StoreFault(f"the key directory {root} cannot be used: {error}") from error

    def ed25519(self, name: str) -> SigningKey:
        """The signing key `name`, made from 32 random bytes the first time.

        Raises ContentError for a name outside `[a-z0-9._-]`, StoreFault for a file that cannot be
        trusted or a disk that refuses.
        """
        return SigningKey(self._bytes_once(f"{name}.ed25519", SEED_BYTES))

    def secret(self, name: str, nbytes: int) -> bytes:
        """The `nbytes` (16 to 4096) secret bytes `name`, drawn the first time; raises as above."""
        if not 16 <= nbytes <= SECRET_BYTES_MAX:
            raise ContentError(f"a secret is 16 to {SECRET_BYTES_MAX} bytes, not {nbytes}")
        return self._bytes_once(f"{name}.secret", nbytes)

    def text_once(self, name: str, factory: Callable[[], str]) -> str:
        """The one line of text in the file `name`, written from `factory` the first time.

        Given without its line end. Raises ContentError if what `factory` gives is empty, or not
        printable ASCII on one line; StoreFault as above.
        """
        path = self._path(name)
        if not path.exists():
            line = factory()
            if not line or not line.isascii() or not line.isprintable():
                raise ContentError(f"the text of {name} is one line of printable ASCII")
            self._create(path, line.encode("ascii") + b"\n")
        text = read_private(path, SECRET_BYTES_MAX).decode("ascii", "replace").removesuffix("\n")
        if not text or not text.isascii() or not text.isprintable():
            raise StoreFault(f"{path} is not one line of ASCII text: restore it, or remove it")
        return text

    def exists(self, file_name: str) -> bool:
        """Whether the file is there, such as `operator.key` or `worker.ed25519`."""
        return self._path(file_name).exists()

    def destroy(self, file_name: str) -> bool:
        """Overwrites and removes the file, durably; whether there was one. Raises StoreFault.

        What was sealed under the key cannot be opened any more. On a disk that copies on write the
        old bytes may outlive this in unused blocks.
        """
        path = self._path(file_name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.write(descriptor, bytes(os.fstat(descriptor).st_size))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            path.unlink()
            sync_directory(self.root)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreFault(f"{path} cannot be destroyed: {error}") from error
        return True

    def sweep(self) -> int:
        """Removes what writes that died left, half a key or a second name of a whole one; how many
        files. While no other process makes keys here. Raises StoreFault."""
        left = list(self.root.glob(f".*{UNFINISHED}"))
        try:
            for path in left:
                path.unlink()
            if left:
                sync_directory(self.root)
        except OSError as error:
            raise StoreFault(f"{self.root} cannot be tidied: {error}") from error
        return len(left)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name.endswith(UNFINISHED):
            raise ContentError(f"{name!r:.80} cannot name a key: use a-z, 0-9, '.', '_' and '-'")
        return self.root / name

    def _bytes_once(self, name: str, nbytes: int) -> bytes:
        path = self._path(name)
        if not path.exists():
            drawn = self._entropy(nbytes)
            if len(drawn) != nbytes:
                raise StoreFault(f"the entropy source gave {len(drawn)} bytes, {nbytes} are needed")
            self._create(path, drawn)
        found = read_private(path, nbytes)
        if len(found) != nbytes:
            raise StoreFault(
                f"{path} has {len(found)} bytes, a key of {nbytes} is needed: restore it from a "
                "backup, or remove it to make a new key (what the old one signed or sealed is lost)"
            )
        return found

    def _create(self, path: Path, content: bytes) -> None:
        unfinished = path.with_name(f".{path.name}.{self._entropy(8).hex()}{UNFINISHED}")
        try:
            write_unfinished(unfinished, content, mode=0o600)
            try:
                # A link, not a rename: it fails if another process was first.
                os.link(unfinished, path)
            except FileExistsError:
                pass
            finally:
                unfinished.unlink()
            sync_directory(self.root)
        except OSError as error:
            kind = DiskFull if lacks_room(error) else StoreFault
            raise kind(f"the key {path} cannot be made: {error}") from error


def read_private(path: Path, nbytes_max: int) -> bytes:
    """The first `nbytes_max` + 1 bytes of a file that nobody else may read: one more than wanted,
    so that a longer one shows. Raises StoreFault for a file that is open to others, that is not
    ours, that is a link, or that cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            _check_private(os.fstat(descriptor), path, "600")
            return os.read(descriptor, nbytes_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreFault(f"the key {path} cannot be read: {error}") from error


def _check_private(status: os.stat_result, path: Path, mode: str) -> None:
    if status.st_uid != os.geteuid():
        raise StoreFault(f"{path} belongs to user {status.st_uid}: chown it to {os.geteuid()}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        found = f"{stat.S_IMODE(status.st_mode):o}"
        raise StoreFault(f"{path} is open to others (mode {found}): chmod {mode} {path}")
