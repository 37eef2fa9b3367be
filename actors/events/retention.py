"""How long events are kept: so many of each source, and so old, as configured.

What a live session has not seen is kept beyond that, up to a cap; past the cap it goes too, and the
session sees a gap in its place. Nothing goes silently: a source's first kept number says it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocol.ids import SourceId
from store.events import EventLogs

log = logging.getLogger("huginn.events")

_DAY_NS: Final = 24 * 3600 * 10**9


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What is kept of each source: its newest `events_max`, none older than `age_ns_max`, and
    `unseen_max` of what some live session has yet to see. None: no such bound."""

    events_max: int | None = 100_000
    age_ns_max: int | None = 90 * _DAY_NS
    unseen_max: int | None = 1_000_000


def no_session(source: SourceId) -> int | None:
    """A floor where nobody reads."""
    return None


def expired(
    logs: EventLogs,
    source: SourceId,
    retention: Retention,
    *,
    now_ns: int,
    floor: Callable[[SourceId], int | None],
) -> int:
    """The number up to which `source` may be trimmed now; 0 or below its first: nothing.

    `floor` is the lowest mark that a live session has in a source, None where none has it in scope.
    """
    kept = logs.range(source)
    through = 0
    if retention.events_max is not None:
        through = kept.head - retention.events_max
    if retention.age_ns_max is not None:
        through = max(through, _older(logs, source, now_ns - retention.age_ns_max))
    if through < kept.first:
        # Nothing is due, which is the most of the time: no session need be asked.
        return 0
    seen = floor(source)
    if seen is not None and seen < through:
        forced = 0 if retention.unseen_max is None else kept.head - retention.unseen_max
        if forced > seen:
            log.warning(
                "source %s: %d events go that a session has not seen: more than %d are kept for it",
                source,
                min(forced, through) - seen,
                retention.unseen_max,
            )
        through = min(through, max(seen, forced))
    return min(through, kept.head)


def _older(logs: EventLogs, source: SourceId, before_ns: int) -> int:
    """The newest kept number whose entry is older than `before_ns`; 0 if none is."""
    kept = logs.range(source)
    oldest = logs.read(source, kept.first - 1, 1)
    if not oldest or oldest[0].hlc >= before_ns:
        return 0
    low, high = kept.first, kept.head
    # Times grow along a source, so halving finds the place in a few reads.
    while low < high:
        middle = (low + high + 1) // 2
        found = logs.read(source, middle - 1, 1)
        if found and found[0].hlc < before_ns:
            low = middle
        else:
            high = middle - 1
    return low
