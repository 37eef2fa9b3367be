"""What a tier of prefix states promises. On disk: `disk.py`; the strict fake: `memory.py`.

A page is kept under (domain, chain): its chain names every token fed up to its end, so equal keys
mean equal rows wherever the profile promises bits. Pages are derived: a tier may lose any of them
at any time, and says so by not finding it. It never gives back rows that are not the page's, and
no fault of its disk is an exception to the one who asks: a page is there and right, or it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from protocol.ids import ChainId, PageId, ProfileId
from protocol.page import PageRows, page_of_sections, section_digest
from protocol.publication import PUBLIC
from store.pages.header import PageHeader, check_header, domain_digest
from store.pages.seal import Section

# The public domain is the one whose pages every other may use (AUT-5), and which is not sealed.
PUBLIC_DIGEST: Final = domain_digest(PUBLIC)
FULL: Final[tuple[Section, ...]] = ("full",)
BOTH: Final[tuple[Section, ...]] = ("full", "sliding")

# `missing` no such page; `stale` the info is of another page than the one kept now; `key` the
# domain's key is not to be had; `busy` the process has no descriptor or memory left. The rest are
# bad files: `io` the disk refuses it, `header` its head, `name` it lies under another page's name,
# `size` its length, `mismatch` it is not the page that was written here, `seal` its seal, `digest`
# its rows.
Reason = Literal[
    "missing",
    "stale",
    "key",
    "busy",
    "io",
    "header",
    "name",
    "size",
    "mismatch",
    "seal",
    "digest",
]


class Clock(Protocol):
    """`wall_ns`: nanoseconds since 1970, may step."""

    def wall_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Page:
    """Which page: `tokens` positions from `start` on, the state at their end being `chain` and
    the state before them `parent` (None exactly if `start` is 0)."""

    domain: str
    chain: ChainId
    parent: ChainId | None
    profile: ProfileId
    start: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PageInfo:
    """A page that is kept: its digest, and the bytes of its two sections."""

    page: Page
    digest: PageId
    full_bytes: int
    sliding_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No rows, and why. The caller computes them anew."""

    reason: Reason
    what: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """What an erasure removed: pages, and files and bytes of whatever kind."""

    pages: int
    files: int
    bytes: int


@dataclass(slots=True)
class PageStats:
    """Counters since the tier was opened, and how it stands now (the first four).

    `refused` counts by reason; `unroomed` pages that no eviction could make room for; `conflicts`
    pages put again with other rows; `reclaimed` files that no page owned.
    """

    pages: int = 0
    bytes: int = 0
    leased: int = 0
    paused: bool = False
    hits: int = 0
    read_bytes: int = 0
    written: int = 0
    written_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    unroomed: int = 0
    conflicts: int = 0
    while_paused: int = 0
    write_errors: int = 0
    index_errors: int = 0
    reclaimed: int = 0
    refused: dict[Reason, int] = field(default_factory=dict)


class PageTier(Protocol):
    """Any thread may call; one writes at a time, and readers do not wait for it.

    After `close` everything raises StoreFault. A page that cannot be (no tokens, a parent where
    there is none) and an unusable domain name raise ContentError: those are the caller's.
    """

    def put(self, page: Page, rows: PageRows) -> bool:
        """Keep the page; whether it is kept, durably. Again is once.

        False if it has no room beside what is leased, if the disk refuses (the tier then pauses),
        if the domain's key is not to be had, or if the page is there with other rows: the first
        stay. Evicts the least recently used pages that are not leased, never the page's ancestors.
        """

    def put_many(self, pages: Iterable[tuple[Page, PageRows]]) -> int:
        """Keep the pages in this order, and stop at the first that cannot be kept: without it
        those behind are of no use. How many of the first were kept, durably."""

    def longest(self, domain: str, chains: Sequence[ChainId]) -> list[PageInfo]:
        """The pages of the longest prefix of `chains` (first advance first) that is wholly kept,
        each in the public domain or in `domain`."""

    def find(self, domain: str, chains: Sequence[ChainId]) -> list[PageInfo]:
        """Those of `chains` whose pages are kept in `domain` itself, whatever lies between."""

    def lost(self, domain: str, chains: Sequence[ChainId]) -> list[Reason]:
        """Why those of `chains` were refused whose pages in `domain` were no good, or gone, when
        the tier was opened; each is told once."""

    def read(self, info: PageInfo, sections: Sequence[Section] = FULL) -> PageRows | Refused:
        """The sections asked for, verified; one that was not asked for is empty.

        A page that is refused for what its file holds is not kept any longer.
        """

    def lease(self, infos: Sequence[PageInfo]) -> AbstractContextManager[list[PageInfo]]:
        """While it is entered, none of the pages it gives is evicted: those of `infos` up to the
        first that is gone. They and their ancestors count as used now."""

    def drop_domain(self, domain: str) -> Dropped:
        """Erase every page of `domain`, leased or not, and every trace of them.

        The one call that raises StoreFault if the disk refuses: an erasure must not seem done.
        """

    def rebuild(self) -> int:
        """Look at what is kept afresh, believing no index; how many pages there are."""

    def stats(self) -> PageStats:
        """A copy of the counters."""

    def close(self) -> None:
        """Give up the tier; its pages stay. Twice is once."""


def header_of(page: Page, rows: PageRows) -> PageHeader:
    """The header of the page with these rows. Raises ContentError for a page that cannot be."""
    return check_header(
        PageHeader(
            v=1,
            domain=domain_digest(page.domain),
            chain=page.chain,
            parent=page.parent,
            profile=page.profile,
            start=page.start,
            tokens=page.tokens,
            full_bytes=len(rows.full),
            full_digest=section_digest(rows.full),
            sliding_bytes=len(rows.sliding),
            sliding_digest=section_digest(rows.sliding),
        )
    )


def info_of(domain: str, header: PageHeader) -> PageInfo:
    """What callers see of a header; `domain` is the text that its digest stands for."""
    page = Page(domain, header.chain, header.parent, header.profile, header.start, header.tokens)
    digest = page_of_sections(header.full_digest, header.sliding_digest)
    return PageInfo(page, digest, header.full_bytes, header.sliding_bytes)
