"""The real clock and the real randomness."""

from __future__ import annotations

import time

from actors.runtime.world import SystemClock, SystemEntropy


def test_the_clock_is_unix_time_and_a_steady_one() -> None:
    clock = SystemClock()
    assert abs(clock.wall_ns() - time.time_ns()) < 10**9
    before = clock.steady_ns()
    assert clock.steady_ns() >= before


def test_entropy_gives_as_much_as_asked_and_never_the_same() -> None:
    entropy = SystemEntropy()
    assert [len(entropy.draw(size)) for size in (0, 1, 16, 64)] == [0, 1, 16, 64]
    assert len({entropy.draw(16) for _ in range(1000)}) == 1000
