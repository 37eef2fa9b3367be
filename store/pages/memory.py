"""Pages in memory: a worker's host tier, and the strict stand-in for the disk in tests.

Stricter than the disk: it checks that a page continues the parent that it knows, that an info came
from it, and that nobody is using a page when it is closed. `full` makes every write fail as a full
disk does; `spoil` makes a page's next read fail as a flipped bit does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.errors import ContentError, StoreFault
from protocol.page import PageRows, section_digest
from store.pages.catalog import Key, key_of
from store.pages.header import PageHeader, domain_digest
from store.pages.seal import Section
from store.pages.shelf import Shelf, key_of_info
from store.pages.tier import BOTH, FULL, Clock, Dropped, Page, PageInfo, Refused, header_of, info_of


class MemoryPageTier(Shelf):
    """`PageTier` in memory. A page costs the bytes of its rows."""

    def __init__(
        self, clock: Clock, budget_bytes: int, domain_budget_bytes: int | None = None
    ) -> None:
        super().__init__(clock, budget_bytes, domain_budget_bytes)
        self.full = False
        self._rows: dict[Key, PageRows] = {}

    def put(self, page: Page, rows: PageRows) -> bool:
        """See `PageTier.put`."""
        header = header_of(page, rows)
        key, size = key_of(header), header.full_bytes + header.sliding_bytes
        with self._lock:
            self._check_open()
            self._check_parent(header)
            known = self._catalog.get(key)
            if known is not None:
                self._stats.conflicts += known.header != header
                self._use([key])
                return known.header == header
            if self.full:
                self._stats.write_errors += 1
                return False
            victims = self._catalog.victims(header, size)
            if victims is None:
                self._stats.unroomed += 1
                return False
            for victim in victims:
                self._stats.evicted += 1
                self._stats.evicted_bytes += self._remove(victim)
            self._rows[key] = rows
            self._catalog.add(header, size, self._clock.wall_ns())
            self._stats.written += 1
            self._stats.written_bytes += size
        return True

    def put_many(self, pages: Iterable[tuple[Page, PageRows]]) -> int:
        """See `PageTier.put_many`."""
        kept = 0
        for page, rows in pages:
            if not self.put(page, rows):
                break
            kept += 1
        return kept

    def read(self, info: PageInfo, sections: Sequence[Section] = FULL) -> PageRows | Refused:
        """See `PageTier.read`."""
        if not sections or not set(sections) <= set(BOTH):
            raise ContentError(f"sections are among {BOTH}, not {sections!r:.80}")
        key = key_of_info(info)
        with self._lock:
            self._check_open()
            entry = self._catalog.get(key)
            if entry is None:
                return self._refuse("missing", f"{info.page.chain} is not kept")
            if info_of(info.page.domain, entry.header) != info:
                return self._refuse("stale", f"{info.page.chain} is another page by now")
            rows = self._rows[key]
            if not _hashes(rows, entry.header, sections):
                self._remove(key)
                return self._refuse("digest", f"the rows of {info.page.chain} do not hash to it")
            found = PageRows(
                full=rows.full if "full" in sections else b"",
                sliding=rows.sliding if "sliding" in sections else b"",
            )
            self._stats.hits += 1
            self._stats.read_bytes += len(found.full) + len(found.sliding)
            return found

    def drop_domain(self, domain: str) -> Dropped:
        """See `PageTier.drop_domain`."""
        digest = domain_digest(domain)
        with self._lock:
            self._check_open()
            entries = self._catalog.drop(digest)
            for entry in entries:
                del self._rows[key_of(entry.header)]
        size = sum(entry.file_bytes for entry in entries)
        return Dropped(pages=len(entries), files=len(entries), bytes=size)

    def rebuild(self) -> int:
        """See `PageTier.rebuild`."""
        with self._lock:
            self._check_open()
            self._catalog.load(list(self._catalog.entries()))
            return len(self._catalog)

    def spoil(self, info: PageInfo) -> None:
        """Make the page's next read fail."""
        key = key_of_info(info)
        rows = self._rows[key]
        self._rows[key] = PageRows(rows.full[:-1] + bytes((rows.full[-1] ^ 1,)), rows.sliding)

    def close(self) -> None:
        """See `PageTier.close`. Raises StoreFault if a page is leased."""
        with self._lock:
            if self._catalog.leased and not self._closed:
                raise StoreFault(f"{self._catalog.leased} pages are leased")
            self._closed = True

    def _remove(self, key: Key) -> int:
        self._rows.pop(key)
        entry = self._catalog.remove(key)
        return 0 if entry is None else entry.file_bytes

    def _check_parent(self, header: PageHeader) -> None:
        if header.parent is None:
            return
        parent = self._catalog.get((header.domain, header.parent.digest))
        if parent is not None and parent.header.start + parent.header.tokens != header.start:
            raise ContentError(f"{header.chain} does not start where its parent ends")


def _hashes(rows: PageRows, header: PageHeader, sections: Sequence[Section]) -> bool:
    return ("full" not in sections or section_digest(rows.full) == header.full_digest) and (
        "sliding" not in sections or section_digest(rows.sliding) == header.sliding_digest
    )
