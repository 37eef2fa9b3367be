"""Which pages there are, who uses them, and which go first. Plain accounting: no file, no clock.

Every use of a page is a use of its ancestors too, and they are marked after it. So in the order of
last use a page stands before all that it needs, and evicting from the front takes leaves first:
what is left of a conversation is always a usable prefix of it.

The whole catalog is in memory, about a kilobyte a page: a lookup must not wait for a database.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from protocol.ids import ChainId
from store.pages.header import PageHeader
from store.pages.tier import PUBLIC_DIGEST

# (digest of the domain, digest of the chain)
Key = tuple[bytes, bytes]


def key_of(header: PageHeader) -> Key:
    """The key under which the page is kept."""
    return header.domain, header.chain.digest


@dataclass(slots=True)
class Entry:
    """One page: what it costs, its last use, and the use that was last written down."""

    header: PageHeader
    file_bytes: int
    used_ns: int
    saved_ns: int = 0


class Catalog:
    """`domain_budget_bytes` None: a domain may fill the whole budget. Not thread-safe."""

    def __init__(self, budget_bytes: int, domain_budget_bytes: int | None) -> None:
        self.budget_bytes = budget_bytes
        self.domain_budget_bytes = budget_bytes
        if domain_budget_bytes is not None:
            self.domain_budget_bytes = min(budget_bytes, domain_budget_bytes)
        self.bytes = 0
        self._domain_bytes: Counter[bytes] = Counter()
        # Within each domain the least recently used first: `used_ns` never falls along it.
        self._domains: dict[bytes, OrderedDict[bytes, Entry]] = {}
        self._leases: Counter[Key] = Counter()
        self._now_ns = 0

    def __len__(self) -> int:
        return sum(map(len, self._domains.values()))

    @property
    def leased(self) -> int:
        """How many pages are leased."""
        return len(self._leases)

    def entries(self) -> Iterator[Entry]:
        """Every page, in no order."""
        for pages in self._domains.values():
            yield from pages.values()

    def get(self, key: Key) -> Entry | None:
        """The page, or None."""
        pages = self._domains.get(key[0])
        return None if pages is None else pages.get(key[1])

    def load(self, entries: Iterable[Entry]) -> None:
        """Replace all that is here. Times that were written down coarsely are put in order: an
        ancestor was used no earlier than its descendants."""
        self._domains.clear()
        self._domain_bytes.clear()
        self.bytes = 0
        found = {key_of(entry.header): entry for entry in entries}
        for entry in sorted(found.values(), key=lambda entry: -entry.header.start):
            if entry.header.parent is not None:
                parent = found.get((entry.header.domain, entry.header.parent.digest))
                if parent is not None:
                    parent.used_ns = max(parent.used_ns, entry.used_ns)
        for entry in sorted(found.values(), key=lambda e: (e.used_ns, -e.header.start)):
            self._insert(entry)
            self._now_ns = max(self._now_ns, entry.used_ns)

    def add(self, header: PageHeader, file_bytes: int, now_ns: int) -> Entry:
        """Note a page that was written, and the use of its ancestors."""
        self.remove(key_of(header))
        entry = Entry(header, file_bytes, self._now_ns)
        self._insert(entry)
        self.use((key_of(header),), now_ns)
        return entry

    def remove(self, key: Key) -> Entry | None:
        """Forget a page; the entry that it had. Its leases stay until they are released."""
        entry = self.get(key)
        if entry is not None:
            pages = self._domains[key[0]]
            del pages[key[1]]
            self.bytes -= entry.file_bytes
            self._domain_bytes[key[0]] -= entry.file_bytes
            if not pages:
                del self._domains[key[0]], self._domain_bytes[key[0]]
        return entry

    def drop(self, domain: bytes) -> list[Entry]:
        """Forget every page of a domain; the entries that it had."""
        entries = list(self._domains.pop(domain, {}).values())
        self.bytes -= self._domain_bytes.pop(domain, 0)
        return entries

    def use(self, keys: Sequence[Key], now_ns: int) -> list[Entry]:
        """These pages were used, and so their ancestors; all that are here, once each."""
        used_ns = self._tick(now_ns)
        used: list[Entry] = []
        # The last first: it is most often the tip, and its ancestors are the others.
        for key in reversed(keys):
            entry = self.get(key)
            while entry is not None and entry.used_ns < used_ns:
                entry.used_ns = used_ns
                self._domains[entry.header.domain].move_to_end(entry.header.chain.digest)
                used.append(entry)
                entry = self._parent(entry.header)
        return used

    def lease(self, keys: Sequence[Key]) -> None:
        """No eviction takes these until they are released as often."""
        self._leases.update(keys)

    def release(self, keys: Sequence[Key]) -> None:
        """The counterpart of `lease`."""
        for key in keys:
            self._leases[key] -= 1
            if self._leases[key] <= 0:
                del self._leases[key]

    def longest(self, domain: bytes, chains: Sequence[ChainId]) -> list[PageHeader]:
        """The headers of the longest prefix that is wholly here, public or of `domain`."""
        found: list[PageHeader] = []
        for chain in chains:
            entry = self.get((PUBLIC_DIGEST, chain.digest)) or self.get((domain, chain.digest))
            if entry is None:
                break
            last = found[-1] if found else None
            if entry.header.parent != (last.chain if last else None):
                break
            if entry.header.start != (last.start + last.tokens if last else 0):
                break
            found.append(entry.header)
        return found

    def victims(self, header: PageHeader | None, file_bytes: int) -> list[Key] | None:
        """Which pages have to go for `file_bytes` more of the page `header` (None: of nobody);
        None if what is leased, or what the page itself needs, leaves no room for it."""
        kept = set(self._leases)
        chosen: dict[Key, int] = {}
        if header is not None:
            entry = self._parent(header)
            while entry is not None:
                kept.add(key_of(entry.header))
                entry = self._parent(entry.header)
            excess = self._domain_bytes[header.domain] + file_bytes - self.domain_budget_bytes
            if not self._choose(chosen, excess, kept, [header.domain]):
                return None
        excess = self.bytes + file_bytes - self.budget_bytes
        if not self._choose(chosen, excess, kept, list(self._domains)):
            return None
        return list(chosen)

    def _choose(
        self, chosen: dict[Key, int], excess: int, kept: set[Key], domains: list[bytes]
    ) -> bool:
        """Adds the least recently used pages of `domains` until `excess` bytes are chosen."""
        excess -= sum(chosen.values())
        if excess <= 0:
            return True
        for _, key, size in heapq.merge(*(self._by_use(domain) for domain in domains)):
            if key not in kept and key not in chosen:
                chosen[key] = size
                excess -= size
                if excess <= 0:
                    return True
        return False

    def _by_use(self, domain: bytes) -> Iterator[tuple[tuple[int, int], Key, int]]:
        for place, (chain, entry) in enumerate(self._domains.get(domain, {}).items()):
            yield (entry.used_ns, place), (domain, chain), entry.file_bytes

    def _parent(self, header: PageHeader) -> Entry | None:
        if header.parent is None:
            return None
        for domain in (header.domain, PUBLIC_DIGEST):
            entry = self.get((domain, header.parent.digest))
            # Ends where this one starts: so the walk goes down, whatever a file may claim.
            if entry is not None and entry.header.start + entry.header.tokens == header.start:
                return entry
        return None

    def _insert(self, entry: Entry) -> None:
        domain, chain = key_of(entry.header)
        self._domains.setdefault(domain, OrderedDict())[chain] = entry
        self._domain_bytes[domain] += entry.file_bytes
        self.bytes += entry.file_bytes

    def _tick(self, now_ns: int) -> int:
        # A clock that stands still or steps back must not make the newest page the oldest.
        self._now_ns = max(self._now_ns + 1, now_ns)
        return self._now_ns
