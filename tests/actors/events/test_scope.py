"""Scopes: what a session calls a source, and who may ask."""

from __future__ import annotations

import pytest

from actors.events.scope import ScopedSource, require
from protocol.errors import NotVisible
from protocol.ids import SourceId
from protocol.resource import Right
from tests.worker_rooms import call_from


def test_a_source_is_called_by_its_path_below() -> None:
    source = ScopedSource(SourceId.of(b"s"), "home/team/ci", "builds", 1, 0)
    assert source.label("home/team/ci") == "builds"
    assert source.label("home/team") == "ci/builds"
    assert source.label("home") == "team/ci/builds"


@pytest.mark.req("AUT-3")
def test_who_may_not_is_told_nothing() -> None:
    call = call_from(rights=[Right.OBSERVE])
    assert require(call, Right.OBSERVE, "alice") == "alice"
    with pytest.raises(NotVisible):
        require(call, Right.GENERATE, "alice")
