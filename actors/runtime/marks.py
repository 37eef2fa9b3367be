"""The high mark of a room's door, kept in a table of the room's own file (AUT-2)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from protocol.errors import CorruptObject
from store.tables import Put, Tables

TABLE: Final = "door"
_KEY: Final = b"high"
_BYTES: Final = 8


class TableMark:
    """A `HighMark` in the keyed table `door` of `tables`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._table = tables.keyed(TABLE)

    def read(self) -> int:
        """The time kept last; 0: none. Raises CorruptObject for what is no time."""
        kept = self._table.get(_KEY)
        if kept is None:
            return 0
        if len(kept) != _BYTES:
            raise CorruptObject(f"the high mark of a door is {_BYTES} bytes, not {len(kept)}")
        return int.from_bytes(kept, "big")

    def keep_soon(self, ns: int) -> Future[list[int]]:
        """Keeps `ns` (Unix time); the future resolves when it is durable."""
        return self._tables.apply_soon([Put(TABLE, _KEY, ns.to_bytes(_BYTES, "big"))])
