"""Whether there was room on the disk for what was last to be kept, as far as the gateway knows.

A request that keeps nothing is answered while the disk is full, so nobody would notice: health says
it. What a room refused for want of room, and what a chat could not store, is noted here; so is that
something was stored again. The front room tries for itself as long as nobody else does.
"""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger("huginn.gateway")

REASON: Final = (
    "The disk that holds Huginn's data directory is full: free some space. Requests that keep "
    "nothing are answered meanwhile, and others are refused."
)


class Space:
    """`lacked` and `found` say what was seen. A pause is told to the log once, and its end once."""

    def __init__(self) -> None:
        self._lacked = 0

    @property
    def is_full(self) -> bool:
        """Whether the last of what was to be kept found no room; false is no promise."""
        return self._lacked > 0

    def lacked(self, what: str) -> None:
        """There was no room for `what`, and it was not kept."""
        self._lacked += 1
        if self._lacked == 1:
            log.error("the disk is full: %s found no room; health says so until that ends", what)

    def found(self) -> None:
        """Something was kept."""
        if self._lacked:
            log.info("there is room on the disk again; %d times there was none", self._lacked)
        self._lacked = 0
