"""What the muninn room needs beside the world: who holds outputs, and who is charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol.ids import ObjectId


class Presence(Protocol):
    """Whether outputs are still there."""

    async def exists(self, domain: str, ids: Sequence[ObjectId]) -> Sequence[bool]:
        """For each id, in order: whether a room holds it for `domain`, or for everybody, and what
        it holds hashes to it. An error counts as no for all of them."""


class Ledger(Protocol):
    """The logical ledger: what was asked for, whatever it cost."""

    def charge(self, principal: bytes, units: int) -> None:
        """Charge `units` derivations to the principal with that key. Raises nothing."""


class NothingHeld:
    """A `Presence` where no room can be asked: evidence is kept, and nothing is served."""

    async def exists(self, domain: str, ids: Sequence[ObjectId]) -> Sequence[bool]:
        return [False] * len(ids)


class Uncharged:
    """A `Ledger` where nobody keeps account."""

    def charge(self, principal: bytes, units: int) -> None:
        """Nothing to do."""
