"""The real clock and the real randomness."""

from __future__ import annotations

import os
import time


class SystemClock:
    """Clock port over the operating system."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def steady_ns(self) -> int:
        return time.monotonic_ns()


class SystemEntropy:
    """Entropy port over the operating system's generator."""

    def draw(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)
