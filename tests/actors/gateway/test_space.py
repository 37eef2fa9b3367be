"""Whether there is room on the disk: its end is told to the log once, and its return once."""

from __future__ import annotations

import logging

import pytest

from actors.gateway.space import Space


def test_a_pause_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "huginn.gateway")
    space = Space()
    space.found()
    assert not space.is_full
    for _ in range(3):
        space.lacked("a context")
        assert space.is_full
    space.found()
    space.found()
    assert not space.is_full
    first, last = (record.getMessage() for record in caplog.records)
    assert "disk is full" in first
    assert "a context" in first
    assert "3 times" in last
    space.lacked("a key")
    assert len(caplog.records) == 3
