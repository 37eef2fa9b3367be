"""The logical ledger: how many derivations each principal has asked for, whatever they cost.

A look is charged before anything is looked up, so a hit and a miss are on the account alike
(DRV-6). Sums are written behind the answer; a disk that fails loses a charge, never an answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

from protocol import cbor
from protocol.errors import HuginnError, RequestError
from store.tables import Delete, Put, Tables

log = logging.getLogger("huginn.muninn")

_TABLE: Final = "asked"


class Ledger:
    """Over the table `asked` of `tables`: principal's public key → derivations. Without tables it
    is kept in memory alone."""

    def __init__(self, tables: Tables | None) -> None:
        self._tables = tables
        self._totals: Counter[bytes] = Counter()
        # Not added to what is stored yet, because that could not be read.
        self._unread: Counter[bytes] = Counter()
        self._read = False

    def charge(self, principal: bytes, units: int) -> None:
        """Charge `units` derivations to the principal with that key. Raises nothing, and waits for
        nothing."""
        self._unread[principal] += units
        if not self._is_read():
            return
        owed, self._unread = self._unread, Counter()
        self._totals.update(owed)
        if self._tables is None:
            return
        changes = [Put(_TABLE, each, cbor.encode(self._totals[each])) for each in owed]
        try:
            self._tables.apply_soon(changes).add_done_callback(_told)
        except HuginnError as error:
            log.warning("a charge is not written down: %s", error)

    def forget(self, principals: Collection[bytes]) -> None:
        """Forget these accounts here; `drop_account` does so on disk."""
        for principal in principals:
            self._totals.pop(principal, None)
            self._unread.pop(principal, None)

    def totals(self) -> dict[bytes, int]:
        """What every principal was charged, as far as that is known."""
        self._is_read()
        return dict(self._totals + self._unread)

    def _is_read(self) -> bool:
        if not self._read:
            try:
                rows = [] if self._tables is None else self._tables.keyed(_TABLE).items()
                self._totals = Counter({key: _units(value) for key, value in rows})
            except HuginnError as error:
                log.warning("the ledger cannot be read: %s", error)
                return False
            self._read = True
        return True


def drop_account(principal: bytes) -> Delete:
    """The change that deletes the account of the principal with that key."""
    return Delete(_TABLE, principal)


def _units(value: bytes) -> int:
    """A sum that rotted counts from 0 again."""
    try:
        found = cbor.decode(value)
    except RequestError:
        return 0
    return found if isinstance(found, int) else 0


def _told(done: Future[list[int]]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.warning("a charge is not written down: %s", error)
