"""Memos of one domain for tests: opened over any tables, and what they give for an advance."""

from __future__ import annotations

from collections import Counter

from actors.muninn.index import Index
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo
from protocol.derivation import invocation_id
from protocol.signing import Signer
from store.tables import Tables
from tests.derivations import EXECUTORS, SEALER, advance
from tests.worker_rooms import HandClock

LIMITS = MemoLimits(entries_max=1000, resident_max=100)


def opened(
    tables: Tables,
    limits: MemoLimits = LIMITS,
    *,
    domain: str = "alice",
    trusted: frozenset[bytes] = EXECUTORS,
    signer: Signer = SEALER,
) -> DomainMemo:
    """A memo over `tables`, and over what lies there already."""
    return DomainMemo(tables, domain, trusted, limits, Counter(), signer=signer, clock=HandClock())


def known(memo: DomainMemo, number: int) -> str | None:
    """The page that the memo gives for an advance, or None."""
    found = memo.find(invocation_id(advance(number).invocation))
    if found is None or not memo.stands(found):
        return None
    return found.examined.evidence.outputs[-1].id


def page(number: int, page: int = 0) -> str:
    """What `known` gives for an advance that ended in that page."""
    return advance(number, page=page).outputs[-1].id


def index_tables(tables: Tables) -> list[str]:
    """The names of every table of alice's index: all but its header."""
    return [
        table.name
        for generation in (0, 1)
        for index in [Index(tables, "alice", generation)]
        for table in (index.guards, index.rows, index.suspects)
    ]
