"""Settings for the whole suite: Hypothesis profiles, the collector, and the one Matrix server."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.matrix.synapse import Synapse, running

# `ci` is what `make test` runs: derandomized, so a red build is a change, not a draw.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
# `fuzz` is what `make fuzz` runs: new draws each time, many more of them.
settings.register_profile(
    "fuzz", deadline=None, max_examples=20_000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish() -> None:
    """Modules and items stay to the end: going through them again took a tenth of all time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    """A real Matrix server, started when the first test asks for it."""
    with running(tmp_path_factory.mktemp("synapse")) as server:
        yield server
