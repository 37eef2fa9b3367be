from __future__ import annotations

import pytest

from protocol.errors import ContentError
from store.memory_tables import MemoryTables
from store.tables import Put


def test_it_takes_plain_batches_only() -> None:
    tables = MemoryTables()
    with pytest.raises(ContentError, match="generator"):
        tables.apply(change for change in [Put("t", b"k", b"v")])  # type: ignore[arg-type]
    assert tables.keyed("t").count() == 0


def test_what_it_shows_is_a_copy() -> None:
    tables = MemoryTables()
    tables.keyed("t").put(b"k", b"v")
    tables.rows("t").clear()
    tables.entries("audit").append(None)  # type: ignore[arg-type]
    assert tables.keyed("t").items() == [(b"k", b"v")]
    assert tables.log("audit").head().seq == 0
