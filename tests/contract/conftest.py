"""The back ends on which the contract suites of `Backend` run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.worker.backend import Backend
from tests.backends import KINDS, OPEN


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
