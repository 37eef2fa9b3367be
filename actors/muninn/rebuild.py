"""Building an index anew from a domain's log, off to the side of the one that serves.

Every entry goes through the step that took it in, so the result is the index that was, but for
which rows are resident. The log has to run, hashed anew, through the head that the header
remembers: a log that was cut, changed or put together otherwise gives no index at all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from actors.muninn.draft import Draft
from actors.muninn.evidence import EvidenceLog, reopened
from actors.muninn.index import Header, Index
from protocol.errors import CorruptObject
from protocol.ids import InvocationId
from store.commit import settled
from store.tables import LogHead, Tables

log = logging.getLogger("huginn.muninn")

# Entries of the log that one transaction takes; between two of them others may run.
BATCH: Final = 128


def begun(tables: Tables, domain: str, *, generation: int, number: int, damaged: int) -> Header:
    """The header of an empty index over log `number` before its first entry."""
    start = EvidenceLog(tables, domain, number).start
    return Header(
        generation=generation,
        log=number,
        seq=start.seq,
        digest=start.digest,
        guards=0,
        suspects=0,
        damaged=damaged,
    )


async def folded(
    tables: Tables, domain: str, header: Header, through: LogHead | None, resident_max: int
) -> Draft | None:
    """The index that `header` begins, filled from its log, but for the last changes: the draft.

    None if the log is damaged, or does not run through the head `through`. Raises StoreFault.
    """
    index = Index(tables, domain, header.generation)
    source = EvidenceLog(tables, domain, header.log)
    await settled(tables.apply_soon(index.clear()))
    passed = through in (None, source.start)
    draft = Draft(index, source, header)
    suspects: set[InvocationId] = set()
    try:
        for head, entry in source.walk():
            said = reopened(entry)
            step = None if said is None else draft.preview(said)
            draft.move(head)
            if said is not None and step is not None:
                draft.take(said, step)
            passed = passed or head == through
            if head.seq % BATCH == 0:
                suspects |= draft.suspects
                changes = [*draft.changes, index.trim_rows(resident_max)]
                await settled(tables.apply_soon(changes))
                draft = Draft(index, source, draft.header)
                await asyncio.sleep(0)
    except CorruptObject as error:
        log.warning("the evidence of %s is put aside: %s", domain, error)
        return None
    if not passed:
        log.warning("the evidence of %s is put aside: its log was cut", domain)
        return None
    draft.suspects |= suspects
    draft.changes.append(index.trim_rows(resident_max))
    return draft
