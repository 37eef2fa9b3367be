"""The nonce window: each invocation is accepted once.

A nonce is remembered by the time that its invocation states, not by when it came: it is forgotten
only when the window's floor has passed that time, and below the floor everything is refused. So
whatever the clock does, nothing is both forgotten and acceptable. The floor follows the latest
time seen, less the allowed skew, so a nonce is kept for 60 s at most (twice the skew). After a
clock that ran ahead is set back, everything is refused until it has caught up.

A window starts empty, with its floor at `started_ns`: what was accepted before a restart lies
below it, provided that the room passes the later of now and its persisted `high_ns` + 1.
"""

from __future__ import annotations

import heapq

from protocol.errors import InvocationError, Unavailable
from protocol.limits import INVOCATION_SKEW_NS_MAX, NONCES_MAX


class NonceWindow:
    """Nonces by signer. Not for use by several threads at once."""

    def __init__(self, started_ns: int, *, nonces_max: int = NONCES_MAX) -> None:
        """`started_ns`: Unix time below which nothing is accepted (the room's own start)."""
        self.started_ns = started_ns
        self.high_ns = started_ns - 1
        self._floor_ns = started_ns
        self._nonces_max = nonces_max
        self._seen: set[tuple[bytes, bytes]] = set()
        self._by_time: list[tuple[int, bytes, bytes]] = []

    def admit(self, signer: bytes, nonce: bytes, ts_ns: int, now_ns: int) -> None:
        """Accepts `signer`'s `nonce`, stated at `ts_ns`, for the one time.

        Raises InvocationError with step `start` for a time below the window's floor, `nonce` for
        one that was seen, and Unavailable when the window is full (nothing is accepted then).
        """
        self._advance(now_ns - INVOCATION_SKEW_NS_MAX)
        if ts_ns < self._floor_ns:
            raise InvocationError(
                "start", f"signed at {ts_ns} ns, nothing before {self._floor_ns} is accepted here"
            )
        key = (signer, nonce)
        if key in self._seen:
            raise InvocationError("nonce", "this invocation was accepted before; sign a new one")
        if len(self._seen) >= self._nonces_max:
            raise Unavailable(f"{self._nonces_max} invocations within the last minute; try later")
        self._seen.add(key)
        heapq.heappush(self._by_time, (ts_ns, signer, nonce))
        self.high_ns = max(self.high_ns, ts_ns)

    def _advance(self, floor_ns: int) -> None:
        self._floor_ns = max(self._floor_ns, floor_ns)
        while self._by_time and self._by_time[0][0] < self._floor_ns:
            _, signer, nonce = heapq.heappop(self._by_time)
            self._seen.discard((signer, nonce))

    def __len__(self) -> int:
        return len(self._seen)
