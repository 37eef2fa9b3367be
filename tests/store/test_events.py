from __future__ import annotations

import pytest

from store.events import append_conflict, page_of
from tests.event_logs import SOURCE, stored_chain

CHAIN = stored_chain(4)


def test_a_page_holds_one_and_then_what_fits() -> None:
    sizes = [len(entry.body) for entry in CHAIN]
    assert page_of(CHAIN, None) == CHAIN
    assert page_of([], 0) == []
    for count in range(1, 4):
        assert page_of(CHAIN, sum(sizes[:count])) == CHAIN[:count]
        assert page_of(iter(CHAIN), sum(sizes[: count + 1]) - 1) == CHAIN[:count]
    assert page_of(CHAIN, 0) == CHAIN[:1]


@pytest.mark.parametrize(("expected", "word"), [(2, "gap"), (4, "taken")])
def test_a_conflict_says_which_way_it_is_wrong(expected: int, word: str) -> None:
    error = append_conflict(CHAIN[2], expected)
    assert word in error.message
    assert error.details == {"source": str(SOURCE), "expected": expected, "found": 3}
