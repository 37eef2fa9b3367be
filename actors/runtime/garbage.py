"""Garbage collection of a process that serves.

What was loaded and built at the start stays until the end: some hundred thousand objects, which
every full collection would look through again, for about 100 ms in the middle of somebody's answer.
And a turn allocates thousands of objects that go with their last reference, while a collection for
each 700 of them takes half a millisecond, several times a turn.
"""

from __future__ import annotations

import gc
from typing import Final

# Objects made and not yet gone before the youngest are collected. What waits for that is cycles
# alone, of which a turn makes a few.
_YOUNG_MAX: Final = 20_000
_COLLECTIONS_PER_OLDER: Final = 10


def spare_the_old() -> None:
    """Call once what this process serves with is built: it is never looked through again. Turns
    collection on if it was off."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_MAX, _COLLECTIONS_PER_OLDER, _COLLECTIONS_PER_OLDER)
