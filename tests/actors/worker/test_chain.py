"""Chains name what was fed, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.chain import chains, next_chain
from actors.worker.schedule import Advance
from protocol.ids import ProfileId
from protocol.tokens import TokenIds
from tests.worker_rooms import PROFILE

pieces = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4).map(tuple), max_size=6)


def as_advances(ids: list[TokenIds]) -> list[Advance]:
    return [Advance(piece, block, 0) for block, piece in enumerate(ids)]


@pytest.mark.req("KV-1")
@given(one=pieces, other=pieces)
def test_two_chains_are_equal_only_for_the_same_pieces(
    one: list[TokenIds], other: list[TokenIds]
) -> None:
    first, second = chains(PROFILE, as_advances(one)), chains(PROFILE, as_advances(other))
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    assert first[:shared] == second[:shared]
    assert not set(first[shared:]) & set(second[shared:])


@pytest.mark.req("KV-1")
def test_the_profile_is_part_of_every_chain() -> None:
    other = ProfileId.of(b"another profile")
    assert not set(chains(PROFILE, as_advances([(1,), (2,)]))) & set(
        chains(other, as_advances([(1,), (2,)]))
    )


def test_a_golden_chain() -> None:
    first = next_chain(PROFILE, None, (1, 2))
    second = next_chain(PROFILE, first, (3,))
    assert str(first) == "chain:xgycspgec4ibrhujbxqnaijefmkm6dk4l4fahcn5ws4po2mygw5a"
    assert str(second) == "chain:hiac3zimiloxsocatjvjfntkhia4mi675eeeny5yeeypt2rx6lxa"
