"""Page files: `<digest of the domain>/<chain id>`, written whole or not at all, verified when read.

A file is synced under an unfinished name, then renamed; its directory is synced by `sync`, once
for many. Files are read-only (0400) in directories of mode 0700. A private domain's sections are
sealed; the public domain's lie open, and their digests in the header vouch for them.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import ContentError, CorruptObject
from protocol.ids import ChainId
from protocol.page import PageRows, section_digest
from store.files import UNFINISHED, Sync, make_directory, sync_directory, write_unfinished
from store.pages.catalog import Key
from store.pages.header import HEAD_BYTES_MAX, PageHeader, decode_head, encode_head
from store.pages.seal import SEAL_BYTES, Section, seal, unseal
from store.pages.tier import BOTH, PUBLIC_DIGEST, Reason, Refused

# O_NONBLOCK: a pipe that somebody put there must not hold a reader.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BUSY: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FOLDER: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Found:
    """One file below a domain's folder; `chain` is None if no page can have its name."""

    path: Path
    domain: bytes
    chain: ChainId | None
    bytes: int
    modified_ns: int


def file_bytes(header: PageHeader, head: bytes) -> int:
    """The length of the file of the page `header`, whose head is `head`."""
    return len(head) + sum(_stored_bytes(header, section) for section in BOTH)


def _stored_bytes(header: PageHeader, section: Section) -> int:
    size = header.full_bytes if section == "full" else header.sliding_bytes
    return size if header.domain == PUBLIC_DIGEST else size + SEAL_BYTES


class PageFiles:
    """The files under `root`; `fsync` is the system's, or a test's."""

    def __init__(self, root: Path, *, fsync: Sync = os.fsync) -> None:
        self.root = root
        self._fsync = fsync

    def path(self, key: Key) -> Path:
        """Where the page's file lies, or would."""
        return self.root / key[0].hex() / str(ChainId(key[1]))

    def write(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> int:
        """Gives the page its file; the file's bytes. `sync` makes its name durable.

        Raises OSError, and ContentError for a domain key of the wrong length.
        """
        head = encode_head(header)
        parts = [rows.full, rows.sliding]
        if domain_key is not None:
            parts = [
                seal(body, section, head=head, domain_key=domain_key)
                for section, body in zip(BOTH, parts, strict=True)
            ]
        path = self.path((header.domain, header.chain.digest))
        unfinished = path.with_name(path.name + UNFINISHED)
        make_directory(path.parent, fsync=self._fsync)
        unfinished.unlink(missing_ok=True)
        write_unfinished(unfinished, b"".join((head, *parts)), mode=0o400, fsync=self._fsync)
        try:
            os.rename(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return file_bytes(header, head)

    def sync(self, domain: bytes) -> None:
        """Makes the names in the domain's folder durable; raises OSError."""
        sync_directory(self.root / domain.hex(), fsync=self._fsync)

    def head(self, found: Found) -> PageHeader | Refused:
        """The header of a file, if it lies under its own name and has its length."""
        try:
            descriptor = os.open(found.path, _READ_FLAGS)
        except OSError as error:
            return _unreadable(error)
        try:
            return self._head(descriptor, found.path)[0]
        except CorruptObject as error:
            return Refused(_reason(error), error.message)
        except OSError as error:
            return _unreadable(error)
        finally:
            os.close(descriptor)

    def read(
        self, header: PageHeader, sections: Sequence[Section], domain_key: bytes | None
    ) -> PageRows | Refused:
        """The sections of the page that `header` is known to be, verified against it."""
        path = self.path((header.domain, header.chain.digest))
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except FileNotFoundError:
            return Refused("missing", f"{path.name} has no file")
        except OSError as error:
            return _unreadable(error)
        try:
            found, head = self._head(descriptor, path)
            if found != header:
                raise _corrupt("mismatch", f"{path.name} holds another page than was put there")
            return _sections(descriptor, header, head, sections, domain_key)
        except CorruptObject as error:
            return Refused(_reason(error), error.message)
        except OSError as error:
            return _unreadable(error)
        finally:
            os.close(descriptor)

    def has(self, key: Key, size: int) -> bool:
        """Whether the page has a file of `size` bytes, whatever is in it."""
        try:
            return self.path(key).lstat().st_size == size
        except OSError:
            return False

    def remove(self, path: Path) -> int:
        """Removes a file; its bytes, or 0 if it is not there. Raises OSError."""
        try:
            size = path.lstat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def drop(self, domain: bytes) -> tuple[int, int]:
        """Removes the domain's folder and all that is in it, durably; (files, bytes) of it.

        Raises OSError; part of it may then be gone.
        """
        folder = self.root / domain.hex()
        files = size = 0
        for directory, folders, names in os.walk(folder, topdown=False):
            for name in names:
                size += self.remove(Path(directory) / name)
                files += 1
            for name in folders:
                below = Path(directory) / name
                below.unlink() if below.is_symlink() else below.rmdir()
        if folder.exists():
            folder.rmdir()
        if self.root.exists():
            # Also if it was gone: who removed it may have failed at this step.
            sync_directory(self.root, fsync=self._fsync)
        return files, size

    def scan(self) -> Iterator[Found]:
        """Every file in a domain's folder; raises OSError."""
        for folder in sorted(self.root.iterdir()):
            if not _FOLDER.fullmatch(folder.name) or not folder.is_dir() or folder.is_symlink():
                continue
            for path in sorted(folder.iterdir()):
                status = path.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    chain = _chain(path.name) if stat.S_ISREG(status.st_mode) else None
                    yield Found(
                        path, bytes.fromhex(folder.name), chain, status.st_size, status.st_mtime_ns
                    )

    def _head(self, descriptor: int, path: Path) -> tuple[PageHeader, bytes]:
        """The header and the head's bytes; raises OSError, or CorruptObject with a `reason`."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _corrupt("io", f"{path.name} is not a file")
        try:
            header, head = decode_head(_read(descriptor, HEAD_BYTES_MAX, 0))
        except CorruptObject as error:
            raise _corrupt("header", error.message) from error
        if self.path((header.domain, header.chain.digest)) != path:
            raise _corrupt("name", f"{path.name} holds {header.chain}")
        wanted = file_bytes(header, head)
        if status.st_size != wanted:
            raise _corrupt("size", f"{path.name} has {status.st_size} bytes, not {wanted}")
        return header, head


def _sections(
    descriptor: int,
    header: PageHeader,
    head: bytes,
    sections: Sequence[Section],
    domain_key: bytes | None,
) -> PageRows:
    at = len(head)
    found: dict[Section, bytes] = {"full": b"", "sliding": b""}
    digests = {"full": header.full_digest, "sliding": header.sliding_digest}
    for section in BOTH:
        size = _stored_bytes(header, section)
        if section in sections:
            body = _read(descriptor, size, at)
            if domain_key is not None:
                try:
                    body = unseal(body, section, head=head, domain_key=domain_key)
                except CorruptObject as error:
                    raise _corrupt("seal", error.message) from error
            if section_digest(body) != digests[section]:
                raise _corrupt("digest", f"the {section} rows of {header.chain} do not hash to it")
            found[section] = body
        at += size
    return PageRows(full=found["full"], sliding=found["sliding"])


def _read(descriptor: int, size: int, at: int) -> bytes:
    """The `size` bytes at `at`, or as many as there are."""
    first = os.pread(descriptor, size, at)
    if len(first) == size or not first:
        return first
    parts, got = [first], len(first)
    while got < size and (part := os.pread(descriptor, size - got, at + got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _chain(name: str) -> ChainId | None:
    try:
        return ChainId.parse(name)
    except ContentError:
        return None


def _unreadable(error: OSError) -> Refused:
    return Refused("busy" if error.errno in _BUSY else "io", str(error))


def _corrupt(reason: Reason, what: str) -> CorruptObject:
    return CorruptObject(what, reason=reason)


def _reason(error: CorruptObject) -> Reason:
    reason: Reason = error.details["reason"]  # type: ignore[assignment]
    return reason
