"""Pages on disk: `PageTier` over files, with a catalog in memory and an index behind it.

    root/lock                           held by the one process that uses the directory
    root/index.db                       see `index.py`
    root/<digest of a domain>/<chain>   see `files.py`

All of it may be deleted at any time, also while it is in use: what is gone is not found. A disk
that refuses a write pauses publication for `PAUSE_NS`; reading goes on. What the file names and
the index show to whoever reads the disk are digests of domains and of chains: not what was said,
but enough to confirm a guess of it. Rows of private domains are sealed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from protocol.errors import HuginnError, StoreFault
from protocol.page import PageRows
from protocol.publication import PUBLIC
from store.files import Sync, make_directory
from store.pages.catalog import Entry, Key, key_of
from store.pages.files import PageFiles, file_bytes
from store.pages.header import PageHeader, domain_digest, encode_head
from store.pages.index import PageIndex
from store.pages.recovery import recover
from store.pages.seal import DOMAIN_KEY_BYTES, Section
from store.pages.shelf import Shelf, key_of_info
from store.pages.tier import (
    FULL,
    Clock,
    Dropped,
    Page,
    PageInfo,
    PageStats,
    Reason,
    Refused,
    header_of,
    info_of,
)

log = logging.getLogger("huginn.pages")

# How long publication rests after the disk refused a write: a full disk is not asked every turn.
PAUSE_NS: Final = 60 * 10**9
# A use is written down if the one written last is older than this: eviction needs no finer order.
USE_GRAIN_NS: Final = 60 * 10**9
# The page is right where it is; only it could not be had now, or was asked for wrongly.
_KEEP: Final[frozenset[Reason]] = frozenset({"stale", "key", "busy"})

# The 32-byte key of a private domain. May raise any HuginnError or OSError: then there is none.
KeyFor = Callable[[str], bytes]


class PageStore(Shelf):
    """`PageTier` in the directory `root`, created (0700) if missing.

    `budget_bytes` bounds the files of all domains, `domain_budget_bytes` those of each; a file is
    its rows and about 500 bytes, and the index takes some 300 more beside the budget. Raises
    StoreFault if another process has the directory, or if it cannot be made or listed at all.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        key_for: KeyFor,
        budget_bytes: int,
        domain_budget_bytes: int | None = None,
        *,
        fsync: Sync = os.fsync,
    ) -> None:
        super().__init__(clock, budget_bytes, domain_budget_bytes)
        self.root = root
        self._key_for = key_for
        self._files = PageFiles(root, fsync=fsync)
        self._paused_ns: int | None = None
        # One write at a time: held while a file is written, taken before the other lock.
        self._writing = threading.Lock()
        # Domains whose folder may hold a name that is not durable yet.
        self._unsynced: set[bytes] = set()
        try:
            make_directory(root, fsync=fsync)
            self._claim = _claim(root / "lock")
        except OSError as error:
            raise StoreFault(f"the page directory {root} cannot be used: {error}") from error
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, self._claim)
            self._index = PageIndex(root / "index.db")
            undo.callback(self._index.close)
            self._recover(self._index.load(), {})
            undo.pop_all()

    def put(self, page: Page, rows: PageRows) -> bool:
        """See `PageTier.put`."""
        return self.put_many([(page, rows)]) == 1

    def put_many(self, pages: Iterable[tuple[Page, PageRows]]) -> int:
        """See `PageTier.put_many`."""
        kept = 0
        domains: set[bytes] = set()
        with self._writing:
            for page, rows in pages:
                header = header_of(page, rows)
                if not self._keep(page.domain, header, rows):
                    break
                domains.add(header.domain)
                kept += 1
            try:
                # Also of a page that was there: who wrote it may have died before this step.
                for domain in domains & self._unsynced:
                    self._files.sync(domain)
                    self._unsynced.discard(domain)
            except OSError as error:
                self._pause(error)
                return 0
        return kept

    def read(self, info: PageInfo, sections: Sequence[Section] = FULL) -> PageRows | Refused:
        """See `PageTier.read`."""
        key = key_of_info(info)
        with self._lock:
            self._check_open()
            entry = self._catalog.get(key)
        if entry is None:
            return self._refuse("missing", f"{info.page.chain} is not kept")
        if info_of(info.page.domain, entry.header) != info:
            return self._refuse("stale", f"{info.page.chain} is another page by now")
        try:
            domain_key = self._domain_key(info.page.domain)
        except (HuginnError, OSError) as error:
            return self._refuse("key", f"no key for the domain of {info.page.chain}: {error}")
        found = self._files.read(entry.header, sections, domain_key)
        if isinstance(found, Refused):
            self._lose(entry, found)
            return self._refuse(found.reason, found.what)
        with self._lock:
            self._stats.hits += 1
            self._stats.read_bytes += len(found.full) + len(found.sliding)
        return found

    def drop_domain(self, domain: str) -> Dropped:
        """See `PageTier.drop_domain`."""
        digest = domain_digest(domain)
        with self._writing, self._lock:
            self._check_open()
            entries = self._catalog.drop(digest)
            self._lost = {key: why for key, why in self._lost.items() if key[0] != digest}
            try:
                files, size = self._files.drop(digest)
                self._index.rewrite(self._catalog.entries())
            except OSError as error:
                # What is left is found again, and can be erased again.
                with contextlib.suppress(StoreFault):
                    self._recover({}, {})
                raise StoreFault(f"pages of a domain could not be erased: {error}") from error
        return Dropped(pages=len(entries), files=files, bytes=size)

    def rebuild(self) -> int:
        """See `PageTier.rebuild`. Raises StoreFault if the directory cannot be listed."""
        with self._writing, self._lock:
            self._check_open()
            used = {key_of(entry.header): entry.used_ns for entry in self._catalog.entries()}
            self._recover({}, used)
            with contextlib.suppress(OSError):
                self._index.rewrite(self._catalog.entries())
            return len(self._catalog)

    def stats(self) -> PageStats:
        """See `PageTier.stats`."""
        with self._lock:
            found = super().stats()
            found.paused = self._paused()
            found.index_errors = self._index.errors
            return found

    def close(self) -> None:
        """See `PageTier.close`."""
        with self._writing, self._lock:
            if not self._closed:
                self._closed = True
                self._index.use(self._catalog.entries())
                self._index.close()
                os.close(self._claim)

    def _keep(self, domain: str, header: PageHeader, rows: PageRows) -> bool:
        key, size = key_of(header), file_bytes(header, encode_head(header))
        with self._lock:
            self._check_open()
            known = self._known(key, header)
            if known is not None:
                return known
            if self._paused():
                self._stats.while_paused += 1
                return False
        try:
            domain_key = self._domain_key(domain)
            if not self._make_room(header, size):
                return False
            self._files.write(header, rows, domain_key)
        except OSError as error:
            self._pause(error)
            return False
        except HuginnError as error:
            self._refuse("key", f"no key for the domain of {header.chain}: {error}")
            return False
        self._unsynced.add(header.domain)
        with self._lock:
            entry = self._catalog.add(header, size, self._clock.wall_ns())
            self._lost.pop(key, None)
            entry.saved_ns = entry.used_ns
            self._stats.written += 1
            self._stats.written_bytes += size
            self._index.save([entry])
        return True

    def _known(self, key: Key, header: PageHeader) -> bool | None:
        """Whether the page is there as it should be; None if it is to be written."""
        entry = self._catalog.get(key)
        if entry is None:
            return None
        if not self._files.has(key, entry.file_bytes):
            self._forget([key])
            return None
        if entry.header != header:
            self._stats.conflicts += 1
            return False
        self._use([key])
        return True

    def _make_room(self, header: PageHeader | None, size: int) -> bool:
        with self._lock:
            victims = self._catalog.victims(header, size)
            if victims is None:
                self._stats.unroomed += 1
                return False
            for key in victims:
                self._stats.evicted_bytes += self._files.remove(self._files.path(key))
                self._forget([key])
                self._stats.evicted += 1
        return True

    def _use(self, keys: Sequence[Key]) -> list[Entry]:
        used = super()._use(keys)
        due = [entry for entry in used if entry.used_ns - entry.saved_ns >= USE_GRAIN_NS]
        if due:
            for entry in due:
                entry.saved_ns = entry.used_ns
            self._index.use(due)
        return used

    def _forget(self, keys: list[Key]) -> None:
        for key in keys:
            self._catalog.remove(key)
        self._index.remove(keys)

    def _lose(self, entry: Entry, why: Refused) -> None:
        """A page turned out bad: it is not kept any longer."""
        if why.reason in _KEEP:
            return
        key = key_of(entry.header)
        with self._lock:
            if self._catalog.get(key) is not entry:
                return
            self._forget([key])
            log.warning("a page was refused (%s) and removed: %s", why.reason, why.what)
            with contextlib.suppress(OSError):
                self._files.remove(self._files.path(key))

    def _domain_key(self, domain: str) -> bytes | None:
        if domain == PUBLIC:
            return None
        key = self._key_for(domain)
        if len(key) != DOMAIN_KEY_BYTES:
            raise StoreFault(f"a domain key has {DOMAIN_KEY_BYTES} bytes, not {len(key)}")
        return key

    def _recover(self, rows: Mapping[Key, Entry], used: Mapping[Key, int]) -> None:
        try:
            found = recover(self._files, rows)
        except OSError as error:
            raise StoreFault(f"the page directory cannot be listed: {error}") from error
        for entry in found.adopted:
            entry.used_ns = used.get(key_of(entry.header), entry.used_ns)
        self._unsynced = {entry.header.domain for entry in found.entries}
        with self._lock:
            self._catalog.load(found.entries)
            self._lost = found.lost
            self._stats.reclaimed += found.reclaimed
            for reason, count in found.refused.items():
                self._stats.refused[reason] = self._stats.refused.get(reason, 0) + count
        self._index.remove(found.stale)
        self._index.save(found.adopted)
        try:
            self._make_room(None, 0)
        except OSError as error:
            self._pause(error)

    def _paused(self) -> bool:
        if self._paused_ns is None:
            return False
        # Both sides: a clock that was set back must not prolong it.
        if abs(self._clock.wall_ns() - self._paused_ns) < PAUSE_NS:
            return True
        self._paused_ns = None
        return False

    def _pause(self, error: OSError) -> None:
        with self._lock:
            self._stats.write_errors += 1
            self._paused_ns = self._clock.wall_ns()
        log.warning("no pages are written for %d s: %s", PAUSE_NS // 10**9, error)


def _claim(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreFault(f"{path.parent} is in use by another process: it has one owner") from None
    return descriptor
