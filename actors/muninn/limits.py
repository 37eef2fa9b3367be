"""How much of a domain is remembered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoLimits:
    """Of one domain, so that none can fill another's: entries of the evidence log (about 5 kB
    each with their index; 0: nothing is remembered), and invocations whose evidence is at hand.
    There is no number for all domains together: the operator makes them, and what one has takes
    nothing from another.

    From seven eighths of its entries on a log is compacted as soon as that can give an eighth
    back; what is new after that, and has no room, is not taken in."""

    entries_max: int = 100_000
    resident_max: int = 16_384

    def is_compacted(self, entries: int, needed: int) -> bool:
        """Whether a log of `entries`, of which at least `needed` have to stay, is to be
        compacted."""
        eighth = max(1, self.entries_max // 8)
        return entries >= self.entries_max - eighth and entries - needed >= eighth
