"""Pages for tests: conversations of them, rows that tell which page they belong to, tiers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.errors import StoreFault
from protocol.ids import ChainId, ProfileId
from protocol.page import PageRows
from store.pages.disk import PageStore
from store.pages.memory import MemoryPageTier
from store.pages.seal import Section
from store.pages.tier import BOTH, Page, PageInfo, PageTier, Refused

PROFILE = ProfileId.of(b"profile")
KINDS = ("memory", "disk")
FULL_BYTES, SLIDING_BYTES = 48, 96
# A page of the default model: 18,432 bytes a token, of which a sixth are full-attention layers.
MODEL_FULL_BYTES, MODEL_SLIDING_BYTES = 3_072, 15_360
Pages = list[tuple[Page, PageRows]]
# Makes a tier of one kind with the budgets given, in bytes.
Make = Callable[..., PageTier]


class TestClock:
    """Stands still until it is turned."""

    __test__ = False

    def __init__(self) -> None:
        self.now_ns = 1_800_000_000 * 10**9

    def wall_ns(self) -> int:
        return self.now_ns

    def turn(self, seconds: float) -> None:
        self.now_ns += int(seconds * 10**9)


def key_for(domain: str) -> bytes:
    """A key for every domain, another for each."""
    return hashlib.sha256(b"key of " + domain.encode()).digest()


def no_sync(_: int) -> None:
    """For tests that write much and prove nothing by syncing."""


def chain(*names: object) -> ChainId:
    """The chain after feeding these, one after the other."""
    found = b""
    for name in names:
        found = ChainId.of(found + str(name).encode()).digest
    return ChainId(found)


def rows_of(page: Page, full: int = FULL_BYTES, sliding: int = SLIDING_BYTES) -> PageRows:
    """The page's rows, a function of its chain and of nothing else."""
    made = hashlib.shake_256(b"rows" + page.chain.digest).digest(full + sliding)
    return PageRows(full=made[:full], sliding=made[full:])


def talk(domain: str, *names: object, tokens: int = 24) -> Pages:
    """One page for each name, each the child of the one before."""
    found: Pages = []
    for count in range(1, len(names) + 1):
        parent = chain(*names[: count - 1]) if count > 1 else None
        start = tokens * (count - 1)
        page = Page(domain, chain(*names[:count]), parent, PROFILE, start, tokens)
        found.append((page, rows_of(page)))
    return found


def chains_of(pages: Pages) -> list[ChainId]:
    return [page.chain for page, _ in pages]


def names_of(infos: list[PageInfo]) -> list[ChainId]:
    """Which pages they are, in their order."""
    return [info.page.chain for info in infos]


def one(tier: PageTier, page: Page) -> PageInfo:
    """The info of a page that is kept and has no parent."""
    (info,) = tier.longest(page.domain, [page.chain])
    return info


def wrong(tier: PageTier, info: PageInfo, sections: Sequence[Section] = BOTH) -> bool:
    """Whether a read gives rows that are not the page's. Refused is not wrong."""
    found = tier.read(info, sections)
    if isinstance(found, Refused):
        return False
    right = rows_of(info.page, info.full_bytes, info.sliding_bytes)
    return found != PageRows(
        full=right.full if "full" in sections else b"",
        sliding=right.sliding if "sliding" in sections else b"",
    )


def no_key(_: str) -> bytes:
    raise StoreFault("the key was destroyed")


def disk(root: Path, clock: TestClock | None = None, budget_bytes: int = 2**30) -> PageStore:
    """A store that does not sync."""
    return PageStore(root, clock or TestClock(), key_for, budget_bytes, fsync=no_sync)


def tier_of(
    kind: str, root: Path, clock: TestClock, budget_bytes: int, domain_budget_bytes: int | None
) -> PageTier:
    """A tier of that kind; the one in memory ignores `root`."""
    if kind == "memory":
        return MemoryPageTier(clock, budget_bytes, domain_budget_bytes)
    return PageStore(root, clock, key_for, budget_bytes, domain_budget_bytes, fsync=no_sync)


def cost(make: Make) -> int:
    """What a page of the samples that has a parent costs in this kind of tier: the most."""
    tier = make()
    first, second = talk("ann", "a", "b")
    assert tier.put(*first)
    before = tier.stats().bytes
    assert tier.put(*second)
    return tier.stats().bytes - before


def overwrite(path: Path, body: bytes) -> None:
    """Other bytes under the same name, whatever the file's mode."""
    path.unlink(missing_ok=True)
    path.write_bytes(body)


def files_below(root: Path) -> list[Path]:
    """Every file of pages: all but the index and the lock."""
    return sorted(
        Path(folder) / name
        for folder, _, names in os.walk(root)
        for name in names
        if Path(folder) != root
    )
