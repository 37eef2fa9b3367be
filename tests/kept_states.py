"""Workers that come and go over one page directory, for tests of what is kept between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from actors.ports import Mailbox
from actors.worker.drivers import LoopDriver
from actors.worker.ledgers import LedgerPorts
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from store.pages.disk import PageStore
from store.pages.memory import MemoryPageTier
from tests.bare_worker import Bare
from tests.fake_backend import FakeBackend
from tests.page_samples import TestClock, disk, files_below, overwrite
from tests.worker_rooms import CHUNK, Bench, Talk, opened
from tests.worker_talks import expected as expected_of

WINDOW = 24
BACKEND = {"window_tokens": WINDOW, "context_tokens": 1024}
# Whatever can be restored is: the tests' conversations are short.
EAGER = {"gain_tokens_min": 1, "tail_tokens_min": 1}


def expected(talk: Talk, *, tokens_max: int = 8) -> Bare:
    """What a worker of any keeper must come to."""
    return expected_of(talk, tokens_max=tokens_max, **BACKEND)


class Keeper:
    """A page directory, and the tiers of whoever runs over it now. Nothing is synced, and pages
    are written when `flush` says so: each run is the same."""

    def __init__(self, root: Path, *, host_bytes: int = 2**30, disk_bytes: int = 2**30) -> None:
        self.root = root
        self.clock = TestClock()
        self.host_bytes = host_bytes
        self.disk_bytes = disk_bytes

    def open(self, **options: Any) -> Tiers:
        """Tiers over the directory; the memory's are empty."""
        self.host = MemoryPageTier(self.clock, self.host_bytes)
        self.disk: PageStore = disk(self.root, self.clock, self.disk_bytes)
        self.writer = PageWriter(self.disk, self.host)
        self.tiers = Tiers(self.host, self.disk, self.writer, **{**EAGER, **options})
        return self.tiers

    def kill(self) -> None:
        """What is not on disk is lost, as after `kill -9`."""
        self.writer._queue.clear()
        self.tiers.close()

    def spoil(self, random: Random) -> None:
        """Change one byte of one page file, or cut it short, or remove it."""
        files = files_below(self.root)
        if files:
            path = random.choice(files)
            body = bytearray(path.read_bytes())
            body[random.randrange(len(body))] ^= 1 << random.randrange(8)
            if random.random() < 0.2:
                del body[random.randrange(len(body)) :]
            overwrite(path, bytes(body))

    @asynccontextmanager
    async def worker(
        self,
        streams: int = 4,
        *,
        mailbox: Mailbox | None = None,
        public_table: Any = None,
        ledgers: LedgerPorts | None = None,
        **options: Any,
    ) -> AsyncIterator[Bench]:
        """A worker on a fresh back end; killed at the end."""
        backend = FakeBackend(streams=streams, chunk_tokens=CHUNK, **BACKEND)
        tiers = self.open(**options)
        async with opened(
            backend,
            driver=LoopDriver(),
            tiers=tiers,
            mailbox=mailbox,
            public_table=public_table,
            ledgers=ledgers,
        ) as bench:
            try:
                yield bench
            finally:
                self.writer._queue.clear()
