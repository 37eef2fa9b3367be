"""Fixtures of the command line's tests: one service for all of them, without a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny_gemma
from tests.fake_rooms import Service
from tests.huginn import answered, reach, served
from tests.scripted_worker import Script

_numbers = itertools.count()


@pytest.fixture(scope="session")
def one_service() -> Iterator[Service]:
    with served() as service:
        yield service


@pytest.fixture
def service(one_service: Service) -> Service:
    one_service.worker.script = Script()
    return one_service


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty data directory."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def newcomer(service: Service, home: Path) -> tuple[str, str]:
    """The name and the key of a principal of this test alone: the service is everybody's."""
    name = f"newcomer{next(_numbers)}"
    made = answered("key", "new", "--principal", name, home=home, **reach(service))
    return name, made["key"]


@pytest.fixture
def tiny_home(home: Path) -> Path:
    """A data directory with the weights of the tiny model."""
    (home / "models").mkdir()
    (home / "models" / "tiny-gemma.gguf").write_bytes(tiny_gemma.cached().read_bytes())
    return home
