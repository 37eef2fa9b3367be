"""What every tier has, wherever its pages lie: the catalog, the counters, and the lock on both."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from protocol.errors import StoreFault
from protocol.ids import ChainId
from protocol.publication import PUBLIC
from store.pages.catalog import Catalog, Entry, Key
from store.pages.header import domain_digest
from store.pages.tier import (
    PUBLIC_DIGEST,
    Clock,
    PageInfo,
    PageStats,
    Reason,
    Refused,
    info_of,
)


def key_of_info(info: PageInfo) -> Key:
    """The key under which the page is kept."""
    return domain_digest(info.page.domain), info.page.chain.digest


class Shelf:
    """The half of `PageTier` that looks at the catalog alone."""

    def __init__(self, clock: Clock, budget_bytes: int, domain_budget_bytes: int | None) -> None:
        self._clock = clock
        # Guards the catalog and the counters; never held while a file is written or read.
        self._lock = threading.RLock()
        self._catalog = Catalog(budget_bytes, domain_budget_bytes)
        self._stats = PageStats()
        # Pages that were found damaged, or gone, when the tier was opened: nobody was told yet.
        self._lost: dict[Key, Reason] = {}
        self._closed = False

    def longest(self, domain: str, chains: Sequence[ChainId]) -> list[PageInfo]:
        """See `PageTier.longest`."""
        own = domain_digest(domain)
        with self._lock:
            self._check_open()
            headers = self._catalog.longest(own, chains)
        return [
            info_of(PUBLIC if header.domain == PUBLIC_DIGEST else domain, header)
            for header in headers
        ]

    def find(self, domain: str, chains: Sequence[ChainId]) -> list[PageInfo]:
        """See `PageTier.find`."""
        own = domain_digest(domain)
        with self._lock:
            self._check_open()
            entries = [self._catalog.get((own, chain.digest)) for chain in chains]
        return [info_of(domain, entry.header) for entry in entries if entry is not None]

    def lost(self, domain: str, chains: Sequence[ChainId]) -> list[Reason]:
        """See `PageTier.lost`."""
        own = domain_digest(domain)
        with self._lock:
            self._check_open()
            if not self._lost:
                return []
            found = [self._lost.pop((own, chain.digest), None) for chain in chains]
        return [reason for reason in found if reason is not None]

    @contextmanager
    def lease(self, infos: Sequence[PageInfo]) -> Iterator[list[PageInfo]]:
        """See `PageTier.lease`."""
        held: list[PageInfo] = []
        keys: list[Key] = []
        with self._lock:
            self._check_open()
            for info in infos:
                entry = self._catalog.get(key_of_info(info))
                if entry is None or info_of(info.page.domain, entry.header) != info:
                    break
                held.append(info)
                keys.append(key_of_info(info))
            self._catalog.lease(keys)
            self._use(keys)
        try:
            yield held
        finally:
            with self._lock:
                self._catalog.release(keys)

    def stats(self) -> PageStats:
        """See `PageTier.stats`."""
        with self._lock:
            return replace(
                self._stats,
                pages=len(self._catalog),
                bytes=self._catalog.bytes,
                leased=self._catalog.leased,
                refused=dict(self._stats.refused),
            )

    def _use(self, keys: Sequence[Key]) -> list[Entry]:
        return self._catalog.use(keys, self._clock.wall_ns())

    def _refuse(self, reason: Reason, what: str) -> Refused:
        with self._lock:
            self._stats.refused[reason] = self._stats.refused.get(reason, 0) + 1
        return Refused(reason, what)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFault("the page store is closed")
