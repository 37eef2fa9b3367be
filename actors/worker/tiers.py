"""Where prefix states lie that no stream holds: host memory, and disk behind it.

A page that was exported is kept in host memory at once and on disk behind everybody's back
(`writer.py`). A prefix may be put together from both: after a restart its beginning lies on disk
and what was fed since in memory. The nearest tier that has a page gives it; one that is refused
there is looked for in the next, and without it the prefix ends before it.

A page is found by the domain that it was kept for, and domains share nothing; but for the first
pages of a prompt, as far as its blocks are public: those are looked for in the public domain first,
and then in the caller's own, where they lie if they were fed before their blocks were published.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from actors.worker.writer import PageWriter
from protocol.errors import HuginnError, StoreFault
from protocol.ids import ChainId, PageId
from protocol.page import PageRows, page_digest
from protocol.publication import PUBLIC
from store.pages.tier import BOTH, FULL, Page, PageInfo, PageStats, PageTier, Refused

log = logging.getLogger("huginn.worker")

# What a restore has to save, in tokens of prefill: some at least, and a share of what it reads.
# Measured on the default model, from disk: 331 tokens cost as much as feeding two, 1,931 as five,
# and 8,192 no more than sixty; feeding a short turn costs thirty.
GAIN_TOKENS_MIN: Final = 8
GAIN_SHARE: Final = 128
# So long a tail of another conversation is not cut off while it can be spared by a restore.
TAIL_TOKENS_MIN: Final = 64
TierName = Literal["host", "disk"]


@dataclass(frozen=True, slots=True)
class Held:
    """One page of a prefix, and the tiers that have it, the nearest first."""

    info: PageInfo
    tiers: tuple[TierName, ...]

    @property
    def stop(self) -> int:
        """How many tokens the prefix has at its end."""
        return self.info.page.start + self.info.page.tokens


@dataclass(slots=True)
class Fetched:
    """The pages of a prefix, verified. `tier_to_tokens` says where they lay; `refused` has the
    reason of every read that gave no rows, also where another tier then had the page."""

    infos: list[PageInfo] = field(default_factory=list)
    rows: list[PageRows] = field(default_factory=list)
    tier_to_tokens: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The length of the prefix."""
        return sum(info.page.tokens for info in self.infos)


class _Read(NamedTuple):
    tier: TierName
    both: bool
    rows: PageRows


class Tiers:
    """Owns its tiers from now on. Used on the engine's thread, but for `holds`, `stats` and
    `close`."""

    def __init__(
        self,
        host: PageTier,
        disk: PageTier | None = None,
        writer: PageWriter | None = None,
        *,
        gain_tokens_min: int = GAIN_TOKENS_MIN,
        tail_tokens_min: int = TAIL_TOKENS_MIN,
        destroy_key: Callable[[str], object] | None = None,
        unopened: str | None = None,
    ) -> None:
        """`destroy_key` destroys the key of a domain's pages. `unopened`: why there is a disk that
        is not among the tiers."""
        self.tail_tokens_min = tail_tokens_min
        self._gain_tokens_min = gain_tokens_min
        self._tiers: dict[TierName, PageTier] = {"host": host}
        if disk is not None:
            self._tiers["disk"] = disk
        self._writer = writer
        self._read_bytes: Counter[TierName] = Counter()
        self._destroy_key = destroy_key
        self._unopened = unopened

    def keep(self, page: Page, rows: PageRows) -> None:
        """Keep a page that was exported. It may get lost; nobody waits for the disk."""
        try:
            self._tiers["host"].put(page, rows)
        except HuginnError as error:
            log.warning("a page of %d tokens is not kept: %s", page.tokens, error)
            return
        if self._writer is not None:
            self._writer.offer(page, rows)

    def longest(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> list[Held]:
        """The pages of the longest prefix of `chains` that is kept for `domain`, in any tier; the
        first `public` of them in the public domain or in that one."""
        known = self._find(domain, chains)
        if public:
            known |= self._find(PUBLIC, chains[:public])
        found: list[Held] = []
        for chain in chains:
            held = known.get(chain)
            if held is None or held.info.page.start != (found[-1].stop if found else 0):
                break
            if held.info.page.parent != (found[-1].info.page.chain if found else None):
                break
            found.append(held)
        return found

    def lost(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> list[str]:
        """Why pages of `chains` are not there that were when the service ran last, each once."""
        return [
            reason
            for tier in self._tiers.values()
            for of, asked in ((domain, chains), (PUBLIC, chains[:public]))
            for reason in tier.lost(of, asked)
        ]

    def drop(self, domain: str) -> None:
        """Erase every page of `domain`, in memory, in the queue and on disk. Raises StoreFault if
        the disk refuses."""
        self._tiers["host"].drop_domain(domain)
        if self._writer is not None:
            # After memory: a page that waits takes those before it along from there.
            self._writer.forget(domain)
        if "disk" in self._tiers:
            self._tiers["disk"].drop_domain(domain)

    def erase(self, domain: str) -> None:
        """Erase every page of `domain`, and then the key that they were sealed with. Raises
        StoreFault if the disk refuses, or if there are pages that cannot be reached."""
        if self._unopened is not None:
            raise StoreFault(f"its pages cannot be reached: {self._unopened}")
        self.drop(domain)
        if self._destroy_key is not None and domain != PUBLIC:
            self._destroy_key(domain)

    def is_worth(self, *, gain: int, tokens: int) -> bool:
        """Whether to restore `tokens` tokens, `gain` of which would be fed otherwise."""
        return gain >= max(self._gain_tokens_min, tokens // GAIN_SHARE)

    def fetch(self, pages: Sequence[Held], sliding_start: Callable[[int], int]) -> Fetched:
        """The rows of `pages`, verified, up to the first that no tier gives.

        A page has its sliding rows if a stream of the length that comes out needs them, by
        `sliding_start`. No page is evicted while it is read.
        """
        refused: list[str] = []
        read: dict[ChainId, _Read] = {}
        with ExitStack() as leases:
            for name, tier in self._tiers.items():
                mine = [held.info for held in pages if name in held.tiers]
                leases.enter_context(tier.lease(mine))
            while True:
                sliding_from = sliding_start(pages[-1].stop) if pages else 0
                fetched = self._gather(pages, sliding_from, read, refused)
                if len(fetched.infos) == len(pages):
                    return fetched
                # A shorter prefix needs older sliding rows: those pages are read again.
                pages = pages[: len(fetched.infos)]

    def holds(self, domains: Sequence[str], chain: ChainId, page: PageId) -> bool:
        """Whether any tier has the page of `chain` in one of `domains`, and gives rows that hash to
        `page`. Any thread may call."""
        for tier in self._tiers.values():
            for info in (info for domain in domains for info in tier.find(domain, [chain])):
                rows = tier.read(info, BOTH)
                if not isinstance(rows, Refused) and page_digest(rows) == page:
                    return True
        return False

    def stats(self) -> dict[str, dict[str, int]]:
        """Counters of each tier, by its name."""
        found: dict[str, dict[str, int]] = {
            name: _counters(tier.stats()) | {"read_bytes": self._read_bytes[name]}
            for name, tier in self._tiers.items()
        }
        if self._writer is not None:
            found["disk"] |= {"queued": self._writer.queued, "dropped": self._writer.dropped}
        return found

    def close(self) -> None:
        """Write what is queued, and give up the tiers. Twice is once."""
        if self._writer is not None:
            self._writer.close()
        for tier in self._tiers.values():
            tier.close()

    def _find(self, domain: str, chains: Sequence[ChainId]) -> dict[ChainId, Held]:
        """Which of `chains` are kept in `domain` itself, and where."""
        known: dict[ChainId, Held] = {}
        for name, tier in self._tiers.items():
            for info in tier.find(domain, chains):
                held = known.get(info.page.chain)
                if held is None:
                    known[info.page.chain] = Held(info, (name,))
                elif held.info == info:
                    known[info.page.chain] = Held(info, (*held.tiers, name))
        return known

    def _gather(
        self,
        pages: Sequence[Held],
        sliding_from: int,
        read: dict[ChainId, _Read],
        refused: list[str],
    ) -> Fetched:
        """The rows of `pages` up to the first that is refused; `read` is what was read before."""
        fetched = Fetched(refused=refused)
        for held in pages:
            chain, both = held.info.page.chain, held.stop > sliding_from
            if both and chain in read and not read[chain].both:
                del read[chain]
            found = read.get(chain) or self._read(held, both, refused)
            if found is None:
                break
            read[chain] = found
            tokens = fetched.tier_to_tokens.get(found.tier, 0) + held.info.page.tokens
            fetched.tier_to_tokens[found.tier] = tokens
            fetched.infos.append(held.info)
            fetched.rows.append(found.rows)
        return fetched

    def _read(self, held: Held, both: bool, refused: list[str]) -> _Read | None:
        for name in held.tiers:
            rows = self._tiers[name].read(held.info, BOTH if both else FULL)
            if not isinstance(rows, Refused):
                self._read_bytes[name] += len(rows.full) + len(rows.sliding)
                return _Read(name, both, rows)
            log.warning("a page in %s was refused (%s): %s", name, rows.reason, rows.what)
            refused.append(rows.reason)
        return None


def _counters(stats: PageStats) -> dict[str, int]:
    return {
        "pages": stats.pages,
        "bytes": stats.bytes,
        "leased": stats.leased,
        "hits": stats.hits,
        "written": stats.written,
        "written_bytes": stats.written_bytes,
        "evicted": stats.evicted,
        "unroomed": stats.unroomed,
        "refused": sum(stats.refused.values()),
        "write_errors": stats.write_errors,
        "paused": int(stats.paused),
    }
