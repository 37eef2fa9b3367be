"""What Ray reads from the environment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.runtime.ray_environment import set_environment
from protocol.errors import StoreFault


@pytest.fixture
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("environment")
def test_authentication_is_on_and_reports_are_off(tmp_path: Path) -> None:
    set_environment(tmp_path)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_memory_monitor_refresh_ms"] == "0"  # noqa: SIM112 - Ray's spelling


@pytest.mark.req("AUT-8")
@pytest.mark.usefixtures("environment")
def test_the_token_is_made_once_and_is_ours_alone(tmp_path: Path) -> None:
    set_environment(tmp_path)
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    first = token.read_text()
    assert len(first.strip()) == 64
    set_environment(tmp_path)
    assert token.read_text() == first


@pytest.mark.usefixtures("environment")
def test_a_token_that_a_crash_left_empty_or_that_others_may_read_is_refused(
    tmp_path: Path,
) -> None:
    set_environment(tmp_path)
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    token.chmod(0o644)
    with pytest.raises(StoreFault, match="600"):
        set_environment(tmp_path)
    token.chmod(0o600)
    token.write_text("")
    with pytest.raises(StoreFault, match="one line"):
        set_environment(tmp_path)
