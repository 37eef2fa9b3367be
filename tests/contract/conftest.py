"""The back ends and page tiers on which the contract suites of `Backend` and `PageTier` run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.worker.backend import Backend
from store.pages.tier import PageTier
from tests.backends import KINDS, OPEN
from tests.page_samples import KINDS as TIER_KINDS
from tests.page_samples import Make, TestClock, tier_of


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """One back end of each kind for a whole module."""
    backend = OPEN[request.param]()
    yield backend
    backend.close()


@pytest.fixture(scope="module", params=["fake", "tiny"])
def small(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """One back end for all examples of a property."""
    backend = OPEN[request.param]()
    yield backend
    backend.close()


@pytest.fixture
def backend(opened: Backend) -> Backend:
    """`opened`, with nothing in any stream."""
    for stream in range(opened.streams):
        opened.truncate(stream, 0)
    return opened


@pytest.fixture(params=TIER_KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes page tiers of one kind, on one clock, and closes them."""
    clock = TestClock()
    made: list[PageTier] = []

    def make_one(budget_bytes: int = 2**20, domain_budget_bytes: int | None = None) -> PageTier:
        root = tmp_path / str(len(made))
        made.append(tier_of(request.param, root, clock, budget_bytes, domain_budget_bytes))
        return made[-1]

    yield make_one
    for tier in made:
        tier.close()
