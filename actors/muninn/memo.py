"""What is remembered for one domain: (domain, invocation) → evidence, served only where it holds.

The memo can cost a caller nothing but the time it saves. Whatever is wrong with it (a value that
rotted, an index or log that is gone, a full or failing disk) makes it say that it does not know;
then it builds the index anew from the log, off to the side, and swaps. A log that is itself damaged
is put aside whole: what it proved may have been a conflict (DRV-4, DRV-5).

Reports and rebuilds wait for each other; looking waits for neither.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from actors.muninn.compaction import compacted
from actors.muninn.draft import Draft
from actors.muninn.evidence import (
    EvidenceLog,
    Examined,
    Kept,
    examine,
    last_generation,
)
from actors.muninn.index import GENERATIONS, Header, Index, Suspicion, put_header, read_header
from actors.muninn.limits import MemoLimits
from actors.muninn.rebuild import Builder
from actors.ports import Clock
from protocol.derivation import DerivationInvocation
from protocol.errors import CorruptObject, DiskFull, HuginnError, RequestError, StoreFault
from protocol.ids import EvidenceId, InvocationId, framed_digest
from protocol.messages.muninn import Origin, Verdict
from protocol.signing import Signer
from store.commit import settled
from store.tables import Append, Change, Drop, LogHead, Tables

T = TypeVar("T")
log = logging.getLogger("huginn.muninn")

_OF_THE_UNKNOWN: Final = frozenset(("inserted", "capacity", "unknown"))
# Rows that one report renews because they were used.
_RENEWED_MAX: Final = 128


FIGURES: Final = ("invocations", "resident", "evidence", "quarantined", "damaged")


class Found(NamedTuple):
    """Evidence that holds, if its outputs are still there; the first that was heard of it, as it
    stands in the log, and how many testimonies and spot checks agree."""

    examined: Examined
    first: Kept | None
    testimonies: int
    checks: int


class Drawn(NamedTuple):
    """One drawn for a spot check; the lowest ranks are drawn."""

    rank: bytes
    invocation: DerivationInvocation
    evidence: EvidenceId
    origin: Origin | None


Said = Examined | InvocationId  # evidence, or that the inputs of this are gone


class DomainMemo:
    """The memo of `domain` in `tables`. `executors`: the keys whose evidence counts. `counters` is
    the room's, and `signer` its key, for checkpoints."""

    def __init__(
        self,
        tables: Tables,
        domain: str,
        executors: Collection[bytes],
        limits: MemoLimits,
        counters: Counter[str],
        *,
        signer: Signer,
        clock: Clock,
    ) -> None:
        self.domain = domain
        self._tables = tables
        self._executors = executors
        self._limits = limits
        self._counters = counters
        self._signer = signer
        self._clock = clock
        self._builder = Builder(tables, domain, limits.resident_max, signer.public)
        self._floor = 0  # entries that the last compaction left
        self._lock = asyncio.Lock()
        self._header: Header | None = None
        self._index = Index(tables, domain, 0)
        self._log = EvidenceLog(tables, domain, 0)
        self._suspects: set[InvocationId] = set()
        self._touched: dict[InvocationId, None] = {}
        self._pending: Future[list[int]] | None = None
        self._lacks_room = False
        self._rotten = False  # something that was read is not what was put there
        self.sound = False
        self.load()

    # -- taking up what is stored ------------------------------------------------------------

    def load(self) -> None:
        """Take up the stored index. `sound` says whether it and the log agree."""
        self.sound = False
        try:
            header = self._stored()
            self._take(header, set())
            self._suspects = {key for key, _ in self._index.suspicions()}
            self.sound = (
                not self._rotten
                and self._log.head() == LogHead(header.seq, header.digest)
                and self._index.guards.count() == header.guards
                and len(self._suspects) == header.suspects
            )
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)

    def _stored(self) -> Header:
        header = read_header(self._tables, self.domain)
        if header is None:
            if last_generation(self._tables, self.domain) is not None:
                raise CorruptObject(f"the memo of {self.domain} has a log and no header")
            header = self._builder.begun(generation=0, number=0, damaged=0)
        return header

    def _take(self, header: Header, suspects: set[InvocationId]) -> None:
        self._header = header
        self._index = Index(self._tables, self.domain, header.generation)
        self._log = EvidenceLog(self._tables, self.domain, header.log)
        self._suspects = suspects

    def _trouble(self, error: Exception) -> None:
        self.sound = False
        self._rotten |= isinstance(error, CorruptObject)
        self._counters["faults"] += 1
        told, self._lacks_room = self._lacks_room, isinstance(error, DiskFull)
        if not (told and self._lacks_room):  # a full disk is told once
            log.warning("the memo of %s knows nothing for now: %s", self.domain, error)

    # -- looking -----------------------------------------------------------------------------

    def find(self, key: InvocationId) -> Found | None:
        """What is known of `key`, with every check but that its outputs are there."""
        try:
            examined = self._served(key)
            guard = None if examined is None else self._index.guard(key)
            first = None if guard is None else self._log.read(guard.seq)
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)
            return None
        if examined is None or guard is None:
            return None
        self._touched[key] = None
        return Found(examined, first, len(guard.evidence), guard.checks)

    def stands(self, found: Found) -> bool:
        """Whether `found`, which was found a moment ago, is still served."""
        try:
            guard = self._index.guard(found.examined.key) if self.sound else None
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)
            return False
        suspect = found.examined.key in self._suspects
        return guard is not None and guard.state == "active" and not suspect

    def _served(self, key: InvocationId) -> Examined | None:
        if not self.sound or key in self._suspects:
            return None
        guard = self._index.guard(key)
        row = None if guard is None or guard.state != "active" else self._index.row(key)
        if guard is None or row is None:
            return None
        try:
            examined = examine(row.invocation, row.evidence, self._executors, (), row.origin)
        except CorruptObject:
            raise
        except RequestError:  # its executor does not count any more, or its family is gone
            return None
        if (
            examined.key != key
            or examined.evidence.domain != self.domain
            or examined.outputs_digest != guard.outputs
            or examined.id.digest not in guard.evidence
        ):
            raise CorruptObject(f"the evidence kept for {key} is not what its guard knows")
        return examined

    def draw(self, count: int, seed: bytes) -> list[Drawn]:
        """Up to `count` of what is served, each equally likely; equal seeds draw equally."""
        drawn: list[Drawn] = []
        try:
            resident = self._index.resident() if self.sound else []
            ranked = ((framed_digest("huginn.sample/1", seed + k.digest), k) for k, _ in resident)
            for rank, key in heapq.nsmallest(count, ranked):
                examined = self._served(key)
                if examined is not None:
                    invocation, origin = examined.invocation, examined.origin
                    drawn.append(Drawn(rank, invocation, examined.id, origin))
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)
        return drawn

    # -- taking in ---------------------------------------------------------------------------

    async def admit(self, said: Sequence[Said], *, known_only: bool = False) -> list[Verdict]:
        """What became of each, as a `Verdict`. `known_only`: nothing is taken
        in about an invocation that is not known."""
        async with self._lock:
            await self._quiet()
            for _ in range(2):  # once more, if what is wrong shows only on the way
                if not self.sound:
                    self.load()
                if not self.sound:
                    await self._rebuild()
                if not self.sound or self._header is None:
                    break
                try:
                    return await self._admit(said, self._header, known_only)
                except (CorruptObject, StoreFault) as error:
                    self._trouble(error)
            return ["unknown"] * len(said)

    async def _admit(self, said: Sequence[Said], header: Header, known_only: bool) -> list[Verdict]:
        draft = Draft(self._index, self._log, header, self._clock.wall_ns())
        draft.changes += self._renewals()
        results = [self._judge(draft, entry, known_only) for entry in said]
        if not _OF_THE_UNKNOWN.isdisjoint(results):
            # What looks new may be a guard that was lost: a conflict would go unseen.
            self._check_guards(header)
        if draft.changes:
            # A conflict is not served from here on, whatever the disk says.
            self._suspects |= draft.suspects
            await self._commit(draft, [self._index.trim_rows(self._limits.resident_max)])
            self._header = draft.header
        return results

    def _check_guards(self, header: Header) -> None:
        found = self._index.guards.count()
        if found != header.guards:
            raise CorruptObject(f"{found} guards of {self.domain}, there were {header.guards}")

    def _judge(self, draft: Draft, entry: Said, known_only: bool) -> Verdict:
        key = entry.key if isinstance(entry, Examined) else entry
        if known_only and draft.guard(key) is None:
            return "unknown"
        step = draft.preview(entry)
        if step is None:
            return "unknown"
        # What takes something out of service is written even where nothing else is.
        full = draft.header.seq >= self._limits.entries_max and step.guard.state == "active"
        if step.kept and not full:
            draft.append(entry, step)
        elif step.result == "inserted":
            return "capacity"
        elif isinstance(entry, Examined) and not step.kept:
            draft.refresh(entry, step)
        return step.result

    def _renewals(self) -> list[Change]:
        """The rows that were used since the last report, so that they are the last to go."""
        renewed: list[Change] = []
        touched = list(self._touched)[-_RENEWED_MAX:]
        self._touched.clear()
        for key in touched:
            row = self._index.row(key)
            if row is not None:
                renewed += self._index.renew_row(key, row)
        return renewed

    async def _quiet(self) -> None:
        """Wait for a transaction whose report was cancelled: it is still made if it had begun."""
        if self._pending is not None:
            with suppress(HuginnError, CancelledError):
                await settled(self._pending)
            self._pending = None

    async def _commit(self, draft: Draft, more: Iterable[Change]) -> None:
        """Make the draft's changes, and `more`. Raises StoreFault, and is not sound then."""
        changes = [*draft.changes, put_header(self.domain, draft.header), *more]
        try:
            self._pending = self._tables.apply_soon(changes)
            done = await settled(self._pending)
        except BaseException:
            self.sound = False
            raise
        self._lacks_room = False
        made = [n for change, n in zip(changes, done, strict=True) if isinstance(change, Append)]
        if made != draft.appended:
            self.sound = False
            raise CorruptObject(f"the log of {self.domain} is longer than its index knew")

    # -- building anew -----------------------------------------------------------------------

    async def rebuild(self, *, disown: bool = False) -> bool:
        """Build the index anew from the log and swap it in; whether that could be done. `disown`:
        begin an empty log instead. What is served meanwhile is what was served before."""
        async with self._lock:
            await self._quiet()
            await self._rebuild(disown=disown)
            return self.sound

    async def mend(self) -> None:
        """Rebuild unless all is well."""
        async with self._lock:
            await self._quiet()
            if not self.sound:
                self.load()
            if not self.sound:
                await self._rebuild()

    @property
    def is_crowded(self) -> bool:
        """Whether the log is nearly full, and compacting it may help."""
        header = self._header
        if header is None or not self.sound:
            return False
        return self._limits.is_compacted(header.seq, max(header.guards, self._floor))

    async def compact(self) -> bool:
        """Put the log's next generation in its place, without what is not needed any more; whether
        that was done. What is served meanwhile is what was served before."""
        async with self._lock:
            await self._quiet()
            known = self._header
            if known is None or not self.is_crowded:
                return False
            self._counters["compactions"] += 1
            try:
                head = LogHead(known.seq, known.digest)
                await compacted(self._tables, self._index, self._log, head, self._signer)
                generation = (known.generation + 1) % GENERATIONS
                begin = self._builder.begun(generation, known.log + 1, known.damaged)
                draft = await self._builder.folded(begin, None)
                counts = None if draft is None else (draft.header.guards, draft.header.suspects)
                if draft is None or counts != (known.guards, known.suspects):
                    raise CorruptObject(f"the log of {self.domain} cannot be compacted")
                await self._commit(draft, [*self._index.clear(), Drop(self._log.name)])
                self._take(draft.header, self._suspects | draft.suspects)
                self._floor = draft.header.seq
            except (CorruptObject, StoreFault) as error:
                self._trouble(error)
            return self.sound

    async def _rebuild(self, *, disown: bool = False) -> None:
        self._counters["rebuilds"] += 1
        try:
            known = self._header if self.sound else self._readable_header()
            draft = await self._builder.anew(known, disown=disown)
            generation = draft.header.generation
            other = Index(self._tables, self.domain, (generation + 1) % GENERATIONS)
            await self._commit(draft, other.clear())
            self._take(draft.header, draft.suspects)
            self._rotten, self.sound = False, True
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)

    def _readable_header(self) -> Header | None:
        try:
            return read_header(self._tables, self.domain)
        except CorruptObject:
            return None

    # -- telling -----------------------------------------------------------------------------

    def figures(self) -> dict[str, int]:
        """Counts for the operator, zeros for what cannot be read."""
        header = self._header
        if header is None:
            return dict.fromkeys(FIGURES, 0)
        return {
            "invocations": header.guards,
            "resident": self._read(self._index.rows.count, 0),
            "evidence": header.seq,
            "quarantined": header.suspects,
            "damaged": header.damaged,
        }

    def suspicions(self, most: int) -> list[tuple[InvocationId, Suspicion]]:
        """At most `most` quarantined invocations, oldest first."""
        none: list[tuple[InvocationId, Suspicion]] = []
        return self._read(self._index.suspicions, none)[:most]

    def _read(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (CorruptObject, StoreFault) as error:
            self._trouble(error)
            return otherwise
