"""Writing pages to disk behind everybody's back: a bounded queue, and a thread that empties it.

Whoever offers a page never waits. A full queue drops it, and so does a disk that takes none; that
costs a later recomputation, never an answer. A page is of no use on disk without those before it,
so what is missing there is written first, from host memory if it is still there: a pause leaves no
hole that stays.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

from protocol.ids import ChainId
from protocol.page import PageRows
from protocol.publication import PUBLIC
from store.pages.tier import BOTH, Page, PageTier, Refused

log = logging.getLogger("huginn.worker")

# The default model's rows of 7,000 tokens. They are mostly the host tier's own, held once.
QUEUE_BYTES_MAX: Final = 128 * 2**20
# Pages of one domain that become durable in one step.
BATCH_PAGES_MAX: Final = 16


class PageWriter:
    """Writes to `disk`, which it does not own, on a thread of its own once it is started.

    `dropped` counts pages that were offered, or missing on disk, and not written.
    """

    def __init__(
        self, disk: PageTier, host: PageTier, *, queue_bytes_max: int = QUEUE_BYTES_MAX
    ) -> None:
        self._disk = disk
        self._host = host
        self._bytes_max = queue_bytes_max
        self._bytes = 0
        self._queue: deque[tuple[Page, PageRows]] = deque()
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self.dropped = 0

    @property
    def queued(self) -> int:
        """Pages that wait."""
        return len(self._queue)

    def start(self) -> PageWriter:
        """Begin to write; once. Without it, `flush` writes on its caller's thread."""
        self._thread = threading.Thread(target=self._run, name="huginn-pages", daemon=True)
        self._thread.start()
        return self

    def offer(self, page: Page, rows: PageRows) -> bool:
        """Queue a page; whether there was room for it."""
        size = len(rows.full) + len(rows.sliding)
        with self._changed:
            if self._closed or self._bytes + size > self._bytes_max:
                self.dropped += 1
                return False
            self._bytes += size
            self._queue.append((page, rows))
            self._changed.notify_all()
        return True

    def forget(self, domain: str) -> None:
        """Drop what waits of `domain`, and wait until nothing of it is being written. Whoever
        offers pages offers none of it meanwhile."""
        with self._changed:
            kept = [item for item in self._queue if item[0].domain != domain]
            self._bytes -= sum(
                len(rows.full) + len(rows.sliding)
                for page, rows in self._queue
                if page.domain == domain
            )
            self._queue = deque(kept)
            self._changed.wait_for(lambda: not self._writing)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything offered so far is written or dropped; whether it was in time."""
        if self._thread is None:
            while self._queue:
                self._write(self._next())
            return True
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._queue and not self._writing, timeout=timeout_s
            )

    def close(self) -> None:
        """Write what is queued, and stop. Twice is once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is None:
            self.flush()
        else:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._closed)
                if not self._queue:
                    return
                self._writing = True
            self._write(self._next())
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _next(self) -> list[tuple[Page, PageRows]]:
        """The oldest page, and those of its domain that follow it at once; none if they were all
        forgotten."""
        with self._changed:
            batch = [self._queue.popleft()] if self._queue else []
            while self._queue and len(batch) < BATCH_PAGES_MAX:
                if self._queue[0][0].domain != batch[0][0].domain:
                    break
                batch.append(self._queue.popleft())
            self._bytes -= sum(len(rows.full) + len(rows.sliding) for _, rows in batch)
            return batch

    def _write(self, batch: list[tuple[Page, PageRows]]) -> None:
        pages: list[tuple[Page, PageRows]] = []
        kept = 0
        try:
            for page, rows in batch:
                missing = self._missing(page, {before.chain for before, _ in pages})
                if missing is None:
                    self.dropped += 1
                else:
                    pages += [*missing, (page, rows)]
            kept = self._disk.put_many(pages)
        except Exception as error:
            # Whatever it is, it is no reason to stop writing the pages of others.
            log.warning("pages are not written to disk: %s", error)
        self.dropped += len(pages) - kept

    def _missing(self, page: Page, ahead: set[ChainId]) -> list[tuple[Page, PageRows]] | None:
        """The pages before `page` that the disk lacks, the first one first; None if one of them
        is nowhere to be had."""
        found: list[tuple[Page, PageRows]] = []
        parent = page.parent
        while parent is not None and parent not in ahead:
            # What a private page continues may be public.
            domains = (page.domain, PUBLIC)
            if any(self._disk.find(domain, [parent]) for domain in domains):
                break
            infos = [info for domain in domains for info in self._host.find(domain, [parent])]
            rows = self._host.read(infos[0], BOTH) if infos else None
            if rows is None or isinstance(rows, Refused):
                return None
            found.append((infos[0].page, rows))
            parent = infos[0].page.parent
        return found[::-1]
