"""The bounds that the fairness rule states, over random loads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.fairness import TOKENS_PER_ROUND, Turns, groups


@pytest.mark.req("KV-12")
@given(
    load=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(1, 256)), min_size=1, max_size=60
    )
)
def test_nobody_waits_for_more_than_the_rule_says(load: list[tuple[bool, bool, int]]) -> None:
    turns = Turns()
    chunks_since_round = rounds_since_chunk = 0
    for prefill, decode, tokens in load:
        unit = turns.choose(prefill=prefill, decode=decode)
        assert unit in ({"prefill": prefill, "decode": decode, None: not (prefill or decode)})
        assert (unit is None) == (not prefill and not decode)
        if unit == "prefill":
            assert prefill
            turns.prefilled(tokens)
            chunks_since_round = chunks_since_round + 1 if decode else 0
            rounds_since_chunk = 0
        elif unit == "decode":
            assert decode
            turns.decoded()
            chunks_since_round = 0
            rounds_since_chunk = rounds_since_chunk + 1 if prefill else 0
        assert chunks_since_round <= 1
        assert rounds_since_chunk <= 256 // TOKENS_PER_ROUND


@given(count=st.integers(0, 20), group_max=st.integers(1, 8))
def test_groups_cover_all_once_and_evenly(count: int, group_max: int) -> None:
    parts = groups(count, group_max)
    covered = [index for part in parts for index in range(count)[part]]
    assert covered == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert all(1 <= size <= group_max for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-count // group_max)
