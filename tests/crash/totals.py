"""What the crash tests of one run did, all together: `conftest.py` tells it at the end.

A test adds to it after its checks, so that a count stands for what was checked and held. What the
controls do is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

SEEDS_PLAYED: Final = "seeds"
DEATHS: Final = "deaths"
FAULTS: Final = "I/O faults"
KILLS: Final = "kill -9"
EVENTS: Final = "acknowledged events"

TOTALS: Final[Counter[str]] = Counter()
# What those kills hit: of a service, they can hit several clients at several steps.
STEP_TO_HITS: Final[Counter[str]] = Counter()


def killed(step: str, *, events: int = 0) -> None:
    """One kill at `step` was checked, and these acknowledged events."""
    TOTALS[KILLS] += 1
    TOTALS[EVENTS] += events
    STEP_TO_HITS[step] += 1


def line(failures: Sequence[str]) -> str:
    """The totals in one line; `failures` are what the tests said that failed."""
    steps = ", ".join(f"{count} in {step}" for step, count in sorted(STEP_TO_HITS.items()))
    counts = [f"{TOTALS[name]:,} {name}" for name in (SEEDS_PLAYED, DEATHS, FAULTS)]
    counts.append(f"{TOTALS[KILLS]:,} {KILLS} ({steps or 'none'})")
    counts.append(f"{TOTALS[EVENTS]:,} {EVENTS}")
    lost = sum("lost" in said or "not told" in said for said in failures)
    twice = sum("told twice" in said for said in failures)
    counts.append(f"{lost} lost, {twice} told twice")
    if failures:
        counts.append(f"{len(failures)} FAILED")
    return f"crash: {'; '.join(counts)}"
