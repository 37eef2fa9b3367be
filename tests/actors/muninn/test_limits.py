"""When a log is compacted."""

from __future__ import annotations

import pytest

from actors.muninn.limits import MemoLimits


@pytest.mark.parametrize(
    ("entries", "needed", "compacted"),
    [(87_499, 0, False), (87_500, 0, True), (87_500, 75_000, True), (87_501, 75_002, False)],
)
def test_a_log_is_compacted_where_that_gives_an_eighth_back(
    entries: int, needed: int, compacted: bool
) -> None:
    assert MemoLimits(entries_max=100_000).is_compacted(entries, needed) is compacted


def test_a_small_log_gives_one_entry_back() -> None:
    assert MemoLimits(entries_max=3).is_compacted(2, 1)
    assert not MemoLimits(entries_max=3).is_compacted(1, 0)
    assert not MemoLimits(entries_max=3).is_compacted(3, 3)
