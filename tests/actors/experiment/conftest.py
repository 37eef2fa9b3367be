"""One service of the tiny model, started as an experiment starts its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.experiment.instance import Instance
from tests import tiny_gemma


@pytest.fixture(scope="package")
def instance() -> Iterator[Instance]:
    with Instance("tiny-gemma", "embedded", tiny_gemma.cached()) as running:
        yield running
