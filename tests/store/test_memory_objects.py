from __future__ import annotations

import pytest

from protocol.errors import ContentError, CorruptObject
from store.memory_objects import MemoryObjectStore, resolved
from tests.stores import text

ONE = text("one")


def test_it_takes_plain_batches_only() -> None:
    store = MemoryObjectStore()
    with pytest.raises(ContentError, match="generator"):
        store.put_many("n", (pair for pair in [ONE]))  # type: ignore[arg-type]
    with pytest.raises(ContentError, match="set"):
        store.has_many(("n",), {ONE[0]})  # type: ignore[arg-type]


@pytest.mark.req("ID-5")
def test_it_hashes_what_it_gives() -> None:
    store = MemoryObjectStore()
    store.put_many("n", [ONE])
    store._bodies[ONE[0]][0] ^= 1
    with pytest.raises(CorruptObject):
        store.get(("n",), ONE[0])


def test_a_resolved_future_holds_the_value_or_the_error() -> None:
    assert resolved(lambda: 1).result(0) == 1
    assert isinstance(resolved(lambda: 1 // 0).exception(0), ZeroDivisionError)
