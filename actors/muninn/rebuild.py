"""Building an index anew from a domain's log, off to the side of the one that serves.

Every entry goes through the step that took it in, so the result is the index that was, but for
which rows are resident. The log has to run, hashed anew, through the head that the header
remembers: a log that was cut, changed or put together otherwise gives no index at all.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from actors.muninn.compaction import open_checkpoint
from actors.muninn.draft import Draft
from actors.muninn.evidence import OPENING, EvidenceLog, last_generation, reopened
from actors.muninn.index import GENERATIONS, Header, Index
from protocol.errors import CorruptObject
from protocol.ids import InvocationId
from store.commit import settled
from store.tables import Drop, LogHead, Tables

log = logging.getLogger("huginn.muninn")

# Entries of the log that one transaction takes; between two of them others may run.
BATCH: Final = 128


@dataclass(frozen=True)
class Builder:
    """Builds indexes of `domain`, in which at most `resident_max` rows are resident. `sealer` is
    the public key that signs checkpoints."""

    tables: Tables
    domain: str
    resident_max: int
    sealer: bytes

    def begun(self, generation: int, number: int, damaged: int) -> Header:
        """The header of an empty index over log `number` before its first entry."""
        start = EvidenceLog(self.tables, self.domain, number).start
        return Header(
            generation=generation,
            log=number,
            seq=start.seq,
            digest=start.digest,
            guards=0,
            suspects=0,
            damaged=damaged,
        )

    async def anew(self, known: Header | None, *, disown: bool) -> Draft:
        """The index over the newest log, in the generation that the index which `known` heads is
        not in, but for the last changes: the draft. Over an empty log if the operator disowns that
        one, or if it is not the one that was written. Raises CorruptObject, StoreFault."""
        number = last_generation(self.tables, self.domain) or 0
        generation, damaged = 0, 0
        through = None
        if known is not None:
            number, generation = max(number, known.log), (known.generation + 1) % GENERATIONS
            damaged = known.damaged
            if known.log == number:
                through = LogHead(known.seq, known.digest)
        draft = None
        if not disown:
            draft = await self.folded(self.begun(generation, number, damaged), through)
        if draft is None:
            draft = await self._emptied(generation, number + 1, damaged + (not disown))
        return draft

    async def folded(self, header: Header, through: LogHead | None) -> Draft | None:
        """The index that `header` begins, filled from its log, but for the last changes: the draft.

        None if the log is damaged, does not run through the head `through`, or begins with a
        checkpoint that is not ours. Raises StoreFault.
        """
        index = Index(self.tables, self.domain, header.generation)
        source = EvidenceLog(self.tables, self.domain, header.log)
        await settled(self.tables.apply_soon(index.clear()))
        passed = through in (None, source.start)
        draft = Draft(index, source, header)
        suspects: set[InvocationId] = set()
        try:
            for head, entry in source.walk():
                if entry.checkpoint is not None:
                    open_checkpoint(entry.checkpoint, self.sealer, self.domain)
                said = reopened(entry)
                step = None if said is None else draft.preview(said)
                draft.move(head)
                if said is not None and step is not None:
                    draft.take(said, step)
                passed = passed or head == through
                if head.seq % BATCH == 0:
                    suspects |= draft.suspects
                    changes = [*draft.changes, index.trim_rows(self.resident_max)]
                    await settled(self.tables.apply_soon(changes))
                    draft = Draft(index, source, draft.header)
                    await asyncio.sleep(0)
        except CorruptObject as error:
            log.warning("the evidence of %s is put aside: %s", self.domain, error)
            return None
        if not passed:
            log.warning("the evidence of %s is put aside: its log was cut", self.domain)
            return None
        draft.suspects |= suspects
        draft.changes.append(index.trim_rows(self.resident_max))
        return draft

    async def _emptied(self, generation: int, number: int, damaged: int) -> Draft:
        """An empty index over the new log `number`, which begins with its opening."""
        index = Index(self.tables, self.domain, generation)
        await settled(self.tables.apply_soon(index.clear()))
        source = EvidenceLog(self.tables, self.domain, number)
        draft = Draft(index, source, self.begun(generation, number, damaged))
        # A compaction that was never finished may have left a log of that name.
        draft.changes.append(Drop(source.name))
        draft.write(OPENING)
        return draft
