"""What one worker takes on. Every job has a limit and an owner (KV-12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from actors.worker.schedule import CHUNK_TOKENS

# Segments of one prompt: a context holds no more tokens than this, and almost no block is empty.
SEGMENTS_MAX: Final = 65_536
SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """`jobs_max` counts answers, waiting or running, `jobs_owner_max` those of one owner;
    `settles_max` settlements that wait. A job may ask for at most `job_ns_max`; a settlement that
    found no quiet moment for `settle_ns_max` is let go. A cancellation that overtakes its job is
    remembered for `tombstone_ns`; at most `tombstones_max` for one owner. `drain_ns` is how long a
    running answer may go on when the worker stops. `chunk_tokens`, `reproducible` and
    `states_equal` come from the profile; the last says that states are equal bit by bit, so that
    an advance is the same whatever pages it started from. One question after pages names at most
    `pages_max`, each of which is read and hashed, and at most `page_asks_max` are answered at
    once."""

    chunk_tokens: int = CHUNK_TOKENS
    reproducible: bool = True
    states_equal: bool = False
    jobs_max: int = 64
    jobs_owner_max: int = 48
    settles_max: int = 64
    job_ns_max: int = 3_600 * SECOND_NS
    settle_ns_max: int = 120 * SECOND_NS
    tombstone_ns: int = 60 * SECOND_NS
    tombstones_max: int = 64
    receipts_kept: int = 10_000
    drain_ns: int = 5 * SECOND_NS
    pages_max: int = 64
    page_asks_max: int = 8
