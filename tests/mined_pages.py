"""A page directory of a process that dies: what lay there at that moment, the next one finds.

Every sync, every name that is given, every file that is removed and every commit of the index may
be the last call. What a dead process would clean up on its way out stays, as after `kill -9`: the
directory is taken down at the moment of the death, and what happens to it then is nobody's.

`InPlaceFiles` and `CarelessFiles` are controls: pages without an unfinished name, and such pages
that nobody verifies.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from protocol.page import PageRows
from store.files import make_directory, write_unfinished
from store.pages.catalog import Entry, Key
from store.pages.disk import PageStore
from store.pages.files import PageFiles, file_bytes
from store.pages.header import PageHeader, encode_head
from store.pages.index import PageIndex
from store.pages.seal import Section, seal
from store.pages.tier import BOTH, Clock, Refused
from tests.mines import Bomb, Death, nothing
from tests.page_samples import key_for, no_sync

INDEX = "index.db"


class MinedFiles(PageFiles):
    """Page files on mined ground. Nothing is synced: a process dies here, no machine."""

    def __init__(self, root: Path, bomb: Bomb) -> None:
        super().__init__(root, fsync=self._synced)
        self._bomb, self._life = bomb, bomb.life

    def write(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> int:
        return self._bomb.call(self._life, lambda: self._written(header, rows, domain_key))

    def remove(self, path: Path) -> int:
        remove = super().remove
        return self._bomb.call(self._life, lambda: remove(path))

    def _written(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> int:
        return super().write(header, rows, domain_key)

    def _synced(self, descriptor: int) -> None:
        self._bomb.call(self._life, nothing, half=partial(self._tear, descriptor))

    def _tear(self, descriptor: int) -> None:
        """Leave half of a file, as if it died while it wrote."""
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            os.ftruncate(descriptor, status.st_size // 2)


class InPlaceFiles(MinedFiles):
    """Writes a page under its own name from the start."""

    def _written(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> int:
        path = self.path((header.domain, header.chain.digest))
        make_directory(path.parent, fsync=no_sync)
        path.unlink(missing_ok=True)
        body = self._body(header, rows, domain_key)
        write_unfinished(path, body, mode=0o400, fsync=self._fsync)
        return len(body)

    def _body(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> bytes:
        assert domain_key is not None
        head = encode_head(header)
        parts = zip(BOTH, (rows.full, rows.sliding), strict=True)
        sealed = [seal(body, part, head=head, domain_key=domain_key) for part, body in parts]
        return b"".join((head, *sealed))


class CarelessFiles(InPlaceFiles):
    """Reserves a page's file before it fills it, and verifies nothing when it reads."""

    def read(
        self, header: PageHeader, sections: Sequence[Section], domain_key: bytes | None
    ) -> PageRows | Refused:
        body = self.path((header.domain, header.chain.digest)).read_bytes()
        at = len(encode_head(header))
        middle, end = at + header.full_bytes, at + header.full_bytes + header.sliding_bytes
        return PageRows(
            full=body[at:middle] if "full" in sections else b"",
            sliding=body[middle:end] if "sliding" in sections else b"",
        )

    def _body(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> bytes:
        head = encode_head(header)
        return (head + rows.full + rows.sliding).ljust(file_bytes(header, head), b"\0")

    def _tear(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        super()._tear(descriptor)
        os.ftruncate(descriptor, size)


class MinedIndex(PageIndex):
    """An index that is committed at once, or never."""

    bomb: Bomb
    life: int

    @classmethod
    def over(cls, index: PageIndex, bomb: Bomb) -> MinedIndex:
        """The index that was opened, from now on on mined ground."""
        index.__class__ = cls
        assert isinstance(index, cls)
        index.bomb, index.life = bomb, bomb.life
        return index

    def _submit(self, work: Any) -> None:
        submit = super()._submit

        def committed() -> None:
            submit(work)
            self.flush()

        self.bomb.call(self.life, committed)


class MinedPages(PageStore):
    """The store of `folder`, over such files and such an index. It may die while it opens."""

    def __init__(self, folder: PageFolder, clock: Clock) -> None:
        folder.store = self
        self._folder = folder
        super().__init__(folder.path, clock, key_for, folder.budget_bytes, fsync=no_sync)

    def kill(self) -> None:
        """Let go of what a process has in its hands, and write nothing."""
        if not self._closed:
            self._closed = True
            self._index.close()
            os.close(self._claim)

    def copy(self, to: Path) -> None:
        """The directory as it lies, to the new directory `to`."""
        database = self._index._database
        assert database is not None
        # In the index's own turn, so that it is copied between two commits.
        database.write(lambda _: _copied(self.root, to))

    def _recover(self, rows: Mapping[Key, Entry], used: Mapping[Key, int]) -> None:
        if isinstance(self._index, MinedIndex):
            super()._recover(rows, used)
            return
        bomb = self._folder.bomb
        self._files = self._folder.files(self.root, bomb)
        self._index = MinedIndex.over(self._index, bomb)
        try:
            super()._recover(rows, used)
        except Death:
            # Nobody has this store in hand, and its claim is let go of where it was made.
            self._closed = True
            self._index.close()
            raise


class PageFolder:
    """The directory of one process after the other, below `root`. `store` is that of the one which
    lives. `loses_index`: the next one finds none."""

    store: MinedPages | None = None

    def __init__(
        self, root: Path, bomb: Bomb, budget_bytes: int, files: type[MinedFiles] = MinedFiles
    ) -> None:
        self.budget_bytes = budget_bytes
        self.loses_index = False
        self.bomb = bomb
        self.files = files
        self._root = root
        self._lives = 0
        bomb.witness = self._take

    @property
    def path(self) -> Path:
        """Where the pages lie now."""
        return self._root / str(self._lives)

    def open(self, clock: Clock) -> MinedPages:
        """The store of the process that begins. Raises Death if it dies over it."""
        if self.loses_index:
            self.loses_index = False
            (self.path / INDEX).unlink()
            (self.path / f"{INDEX}-wal").unlink(missing_ok=True)
        return MinedPages(self, clock)

    def bury(self) -> None:
        """Away with what the dead process had: the next one finds what lay there when it died."""
        if self.store is not None:
            self.store.kill()
            self.store = None
            shutil.rmtree(self.path)
            self._lives += 1

    def _take(self) -> None:
        if self.store is not None:
            self.store.copy(self._root / str(self._lives + 1))


def _copied(old: Path, new: Path) -> None:
    # A page's file is never changed once it has its name: a second name for it is a copy.
    ignored = shutil.ignore_patterns("lock", f"{INDEX}*")
    shutil.copytree(old, new, copy_function=os.link, ignore=ignored)
    for name in (INDEX, f"{INDEX}-wal"):
        if (old / name).exists():
            shutil.copy(old / name, new)
