"""A back end that cannot follow the schedule is refused, with both numbers."""

from __future__ import annotations

import pytest

from actors.worker.backend import check_backend
from protocol.errors import ProfileFault
from tests.fake_backend import FakeBackend


def test_a_back_end_takes_at_least_what_the_schedule_feeds_at_once() -> None:
    check_backend(FakeBackend(chunk_tokens=16), 16)
    check_backend(FakeBackend(chunk_tokens=16), 8)
    with pytest.raises(ProfileFault, match=r"feeds 17 tokens at a time; this back end .* 16"):
        check_backend(FakeBackend(chunk_tokens=16), 17)
